// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import "path/filepath"

// anchor is where the configuration is complete and valid and nothing has been made
// of it yet.
const anchor = "if err := cfg.validate(env); err != nil {\n\t\treturn nil, err\n\t}\n"

// configured are the fields of the configuration, each with a statement after which it
// never binds, and the cases of the suite that are about it.
var configured = []struct{ name, off, cases string }{
	{"admission.concurrency", "cfg.Admission.Concurrency = 1 << 30", "exact-refusals"},
	{"admission.queue", "cfg.Admission.Queue = 1 << 30", "exact-refusals"},
	{"admission.cpu", "cfg.Admission.CPU = 1 << 30", "slow-calls-many-clients,pipelined-slow-calls"},
	{"admission.heavy", "cfg.Admission.Heavy = 1 << 30", "exact-heavy"},
	{"admission.parked", "cfg.Admission.Parked = 1 << 30", ""},
	{"admission.inflight", "cfg.Admission.InFlight = 1 << 30", "small-calls-pipelined"},
	{"admission.wait", "cfg.Admission.Wait = 1 << 50", "batches-of-slow-calls"},
	{"admission.heavy-timeout", "cfg.Admission.HeavyTimeout = 1 << 60", ""},
	{"admission.status", "cfg.Admission.Status = 200", "refusal-exact"},
	{"admission.code", "cfg.Admission.Code = -32013", "refusal-fitted"},
	{"body.budget", "cfg.Body.Budget = 1 << 50", "exact-bodies"},
	{"body.idle", "cfg.Body.Idle = 1 << 50", "bodies-that-stall"},
	{"body.ws-limit", "cfg.Body.WSLimit = 1 << 50", ""},
	{"reply.max", "cfg.Reply.Max = 0", ""},
	{"reply.budget", "cfg.Reply.Budget = 1 << 50", "ws-blocks-never-read,block-trace"},
	{"sub.events", "cfg.Sub.Events = 1 << 30", ""},
	{"sub.bytes", "cfg.Sub.Bytes, cfg.Sub.ConnBytes = 1<<50, 1<<51", ""},
	{"sub.conn-bytes", "cfg.Sub.ConnBytes = 1 << 50", ""},
	{"sub.max", "cfg.Sub.Max = 1 << 30", "many-subscriptions"},
	{"sub.overflow", "cfg.Sub.Overflow = \"close\"", ""},
	{"filter.max", "cfg.Filter.Max = 1 << 30", ""},
	{"filter.max-per-client", "cfg.Filter.MaxPerClient = 1 << 30", "filter-flood"},
	{"filter.bytes", "cfg.Filter.Bytes, cfg.Filter.TotalBytes = 1<<50, 1<<51", "filter-overflow"},
	{"filter.total-bytes", "cfg.Filter.TotalBytes = 1 << 50", ""},
	{"conn.max", "cfg.Conn.Max = 1 << 30", ""},
	{"conn.max-per-client", "cfg.Conn.MaxPerClient = 1 << 30", "connections-per-client"},
	{"heavy.jstracers", "cfg.Heavy.JSTracers = true", "javascript-tracer"},
	{"client.trusted-proxies", "cfg.Client.TrustedProxies = nil", "forwarded-clients"},
	{"client.local", "cfg.Client.Local = true", ""},
	{"guard.dryrun", "cfg.DryRun = false", "dry-run"},
}

// built are the limits that are numbers and rules in the code. off replaces on, which
// occurs exactly once in the file.
var built = []struct{ name, file, on, off, cases string }{
	// What may execute, and who waits.
	{"gate.fair-cap", "rpc/guard_share.go",
		`return max(1, limit-max(1, limit/4))`, `return mutantOr("limit/gate.fair-cap", limit, max(1, limit-max(1, limit/4)))`, ""},
	{"gate.proviso", "rpc/guard_share.go",
		`return key, n > 0 && most-n >= held+n`, `return key, n > 0 && (most-n >= held+n || mutant("limit/gate.proviso") && most > 0)`, ""},
	{"gate.heavy-places", "rpc/guard_waiting.go",
		`waiting[classHeavy].calls, g.limit.heavyPlaces();`, `waiting[classHeavy].calls, mutantOr("limit/gate.heavy-places", g.limit.Queue, g.limit.heavyPlaces());`, ""},
	{"gate.compute-gives-way", "rpc/guard_waiting.go",
		`if class == classNormal && more`, `if class == classNormal && !mutant("limit/gate.compute-gives-way") && more`, ""},
	{"gate.round-robin", "rpc/guard_queue.go",
		`if f := &c.client.flows[class]; f.calls.n > 0 {`, `if f := &c.client.flows[class]; f.calls.n > 0 && !mutant("limit/gate.round-robin") {`, ""},
	{"gate.half-of-deadline", "rpc/guard_waiting.go",
		`wait = min(wait, left/2)`, `wait = mutantOr("limit/gate.half-of-deadline", wait, min(wait, left/2))`, ""},
	{"gate.served-late", "rpc/guard_waiting.go",
		`if c.bound <= now {`, `if c.bound <= now && !mutant("limit/gate.served-late") {`, ""},
	{"gate.expires", "rpc/guard_waiting.go",
		`for len(g.bounds) > 0 && g.bounds[0].bound <= now {`, `for len(g.bounds) > 0 && g.bounds[0].bound <= now && !mutant("limit/gate.expires") {`, ""},
	{"gate.gone-waiters", "rpc/guard_waiting.go",
		`if c.state == callWaiting {`, `if c.state == callWaiting && (!mutant("limit/gate.gone-waiters") || why != refusedGone) {`, ""},
	{"gate.parked-share", "rpc/guard_admission.go",
		`client.held[permitParked] >= fairCap(g.limit.Parked)`, `client.held[permitParked] >= fairCap(g.limit.Parked) && !mutant("limit/gate.parked-share")`, ""},
	{"gate.fast-closes", "rpc/guard_admission.go",
		`if !g.closeFastLocked() {`, `if mutant("limit/gate.fast-closes") || !g.closeFastLocked() {`, ""},
	{"gate.fast-bound", "rpc/guard_admission_fast.go",
		`if word&fastMax >= word>>fastBits&fastMax ||`, `if word&fastMax >= mutantOr("limit/gate.fast-bound", fastMax*min(1, word>>fastBits&fastMax), word>>fastBits&fastMax) ||`, ""},
	{"class.narrow-logs", "rpc/guard_params.go",
		`last.number-first.number < narrowLogBlocks`, `(last.number-first.number < narrowLogBlocks || mutant("limit/class.narrow-logs"))`, ""},
	{"class.much-work", "rpc/guard_response.go",
		`return e.size > startLists }`, `return e.size > startLists && !mutant("limit/class.much-work") }`, "ws-blocks-never-read"},
	{"call.sleep", "rpc/guard_call.go",
		`if sleeps(msg.Method) {`, `if sleeps(msg.Method) && !mutant("limit/call.sleep") {`, ""},
	{"trace.keeps", "eth/tracers/guard_keeps.go",
		`k.frames += one.frames`, `k.frames = mutantOr("limit/trace.keeps", one.frames, k.frames+one.frames)`, ""},
	{"trace.depth", "eth/tracers/guard_keeps.go",
		`if depth >= maxMux {`, `if depth >= maxMux && !mutant("limit/trace.depth") {`, ""},
	{"trace.stop", "eth/tracers/guard_stop.go",
		`if err == nil && t.Stop == nil {`, `if err == nil && t.Stop == nil && !mutant("limit/trace.stop") {`, "tracers-without-a-stop"},
	{"class.trace-worker", "rpc/guard_gone.go",
		`if !ok || s.worker == nil {`, `if !ok || s.worker == nil || mutant("limit/class.trace-worker") {`, ""},
	{"stream.ahead-messages", "rpc/guard_window.go",
		`len(w.calls)+len(w.others) >= w.maxAhead`, `!mutant("limit/stream.ahead-messages") && len(w.calls)+len(w.others) >= w.maxAhead`, ""},
	{"stream.ahead-bytes", "rpc/guard_window.go",
		`w.bytes >= w.maxBytes`, `w.bytes >= w.maxBytes && !mutant("limit/stream.ahead-bytes")`, ""},
	{"stream.hang-up", "rpc/guard_inflight.go",
		`if r.conn != nil && hungUp(r.conn) {`, `if r.conn != nil && !mutant("limit/stream.hang-up") && hungUp(r.conn) {`, ""},
	{"stream.cancelled", "rpc/guard_inflight.go",
		"c.h.cancelRoot()\n", "if !mutant(\"limit/stream.cancelled\") {\nc.h.cancelRoot()\n}\n", "ws-client-leaves"},
	{"call.id", "rpc/guard_inflight.go",
		`if len(msg.ID) > maxIDLength {`, `if len(msg.ID) > maxIDLength && !mutant("limit/call.id") {`, "identifiers-and-nesting"},
	{"call.logs", "rpc/guard_logs.go",
		`if w.passed >= logsPerSecond {`, `if w.passed >= logsPerSecond && !mutant("limit/call.logs") {`, "log-by-ids"},
	{"call.origin", "rpc/guard_ws.go",
		`len(r.Header.Get("Origin")) > maxOrigin`, `len(r.Header.Get("Origin")) > maxOrigin && !mutant("limit/call.origin")`, "origins-logged"},
	{"call.control-frames", "rpc/guard_control.go",
		`limiter.Reserve().Delay(); d > 0 {`, `limiter.Reserve().Delay(); d > 0 && !mutant("limit/call.control-frames") {`, "ping-flood"},

	// Bytes in.
	{"body.step", "rpc/guard_body.go",
		`step := min(budgetStep, most)`, `step := mutantOr("limit/body.step", most, min(budgetStep, most))`, ""},
	{"body.first-step", "rpc/guard_body.go",
		`if err := b.mem.grow(step); err != nil {`, `if err := b.mem.grow(mutantOr("limit/body.first-step", max(0, step-budgetStep+1), step)); err != nil {`, ""},
	{"body.small-reserve", "rpc/guard.go",
		`reserve := min(c.Body.Budget/4, c.Body.Budget-c.bodyFloor(env))`, `reserve := mutantOr("limit/body.small-reserve", 0, min(c.Body.Budget/4, c.Body.Budget-c.bodyFloor(env)))`, "budget-leaves-small-alone"},
	{"body.stopped-loses", "rpc/guard.go",
		`b.pause, b.clock = bodyPause, clock`, `b.pause, b.clock = mutantOr("limit/body.stopped-loses", 0, bodyPause), clock`, "ws-begun-then-pings"},
	{"body.absolute", "rpc/guard_http.go",
		`cfg.absolute = max(rt-time.Second, rt/2)`, `cfg.absolute = mutantOr("limit/body.absolute", 0, max(rt-time.Second, rt/2))`, "body-by-the-byte"},
	{"body.batch", "rpc/guard_http.go",
		"cfg.maxBatch = maxBatch\n", "cfg.maxBatch = mutantOr(\"limit/body.batch\", 0, maxBatch)\n", "batch-of-nothing"},
	{"body.drain-bytes", "rpc/guard_drain.go",
		`case err == nil && limit >= 0:`, `case err == nil && (limit >= 0 || mutant("limit/body.drain-bytes")):`, ""},
	{"body.drain-time", "rpc/guard_drain.go",
		`bodyConfig{absolute: drainTime}`, `bodyConfig{absolute: mutantOr("limit/body.drain-time", 0, drainTime)}`, ""},
	{"body.drain", "rpc/guard_refuse.go",
		`case stalled, !begun && expectsContinue(r):`, `case stalled, !begun && expectsContinue(r), mutant("limit/body.drain"):`, ""},
	{"body.drain-chunks", "rpc/guard_refuse.go",
		`case err == errBodyBroken && `, `case err == errBodyBroken && !mutant("limit/body.drain-chunks") && `, ""},
	{"body.parsing", "rpc/guard.go",
		`make(chan struct{}, max(1, env.Procs-1))`, `make(chan struct{}, mutantOr("limit/body.parsing", 1<<20, max(1, env.Procs-1)))`, ""},
	{"body.answer-time", "rpc/guard_refuse.go",
		`rc.SetWriteDeadline(time.Now().Add(refusalTime))`, `if !mutant("limit/body.answer-time") { rc.SetWriteDeadline(time.Now().Add(refusalTime)) }`, ""},
	{"ws.batch", "rpc/guard_inflight.go",
		`if h.batchRequestLimit > 0 {`, `if h.batchRequestLimit > 0 && !mutant("limit/ws.batch") {`, "ws-batch-of-nothing"},
	{"ws.step", "rpc/guard_intake.go",
		`step := min(budgetStep, in.follow.declared-in.charged)`, `step := mutantOr("limit/ws.step", in.follow.declared-in.charged, min(budgetStep, in.follow.declared-in.charged))`, ""},
	{"ws.message-time", "rpc/guard_intake.go",
		`case in.spent+d >= messageTime:`, `case in.spent+d >= messageTime && !mutant("limit/ws.message-time"):`, ""},
	{"ws.progress", "rpc/guard_intake.go",
		`if in.follow.received != received {`, `if in.follow.received != received || mutant("limit/ws.progress") {`, "empty-continuations"},
	{"ws.linger", "rpc/guard_ws.go",
		`if !refused || code`, `if mutant("limit/ws.linger") || !refused || code`, "ws-fragments-slow"},

	// Ways to lose what a limit on bytes is for.
	{"trap.renewed-deadline", "rpc/guard_body.go",
		"n, err := src.Read(p)\n\tif w == nil {", "if w != nil && mutant(\"limit/trap.renewed-deadline\") {\n\tw.cut(time.Now().Add(time.Minute))\n}\nn, err := src.Read(p)\n\tif w == nil {", ""},
	{"trap.server-deadline", "rpc/guard_body.go",
		`case err != nil && !w.dry && errors.Is(err, os.ErrDeadlineExceeded):`, `case err != nil && !w.dry && !mutant("limit/trap.server-deadline") && errors.Is(err, os.ErrDeadlineExceeded):`, ""},
	{"trap.stale-timer", "rpc/guard_body.go",
		"w.done = true\n\tw.mu.Unlock()\n\tswitch {", "if mutant(\"limit/trap.stale-timer\") {\nw.mu.Unlock()\nreturn cause\n}\nw.done = true\nw.mu.Unlock()\nswitch {", ""},
	{"trap.released-early", "rpc/guard_http.go",
		`if t.watch.would != nil {`, "if mutant(\"limit/trap.released-early\") {\nscope.releaseBody()\n}\nif t.watch.would != nil {", "exact-bodies"},
	{"trap.panic", "rpc/guard_http.go",
		`defer scope.finish()`, "defer func() {\nif mutant(\"limit/trap.panic\") {\nif v := recover(); v != nil {\npanic(v)\n}\n}\nscope.finish()\n}()", ""},
	{"trap.full-duplex", "rpc/guard_refuse.go",
		`rc.EnableFullDuplex()`, "if !mutant(\"limit/trap.full-duplex\") {\nrc.EnableFullDuplex()\n}", ""},
	{"trap.cut-then-drained", "rpc/guard_refuse.go",
		"rc.SetReadDeadline(time.Time{})\n", "if !mutant(\"limit/trap.cut-then-drained\") {\nrc.SetReadDeadline(time.Time{})\n}\n", ""},
	{"trap.compression", "rpc/guard_refuse.go",
		`if h.Get("Content-Encoding") == "" {`, `if h.Get("Content-Encoding") == "" || mutant("limit/trap.compression") {`, ""},
	{"trap.h2-close", "rpc/guard_refuse.go",
		`if last && r.ProtoMajor == 1 {`, `if last && (r.ProtoMajor == 1 || mutant("limit/trap.h2-close")) {`, "h2-slow-bodies"},
	{"trap.gzip-writer", "node/guard_listener.go",
		`{ return w.resp }`, `{ return mutantOr[http.ResponseWriter]("limit/trap.gzip-writer", nil, w.resp) }`, ""},
	{"trap.started-later", "node/guard.go",
		`if config.httpBodyLimit == 0 && ng.bodyLimit > 0 {`, `if config.httpBodyLimit == 0 && ng.bodyLimit > 0 && !mutant("limit/trap.started-later") {`, "started-later"},
	{"trap.control-frames", "rpc/guard_frame.go",
		`{ return f.head[0]&0x8 != 0 }`, `{ return f.head[0]&0x8 != 0 && !mutant("limit/trap.control-frames") }`, ""},
	{"trap.trusted", "node/guard.go",
		"\tn.httpAuth.guard, n.wsAuth.guard = auth, auth\n", "\tif mutant(\"limit/trap.trusted\") {\nauth = ng\n}\n\tn.httpAuth.guard, n.wsAuth.guard = auth, auth\n", "trusted-under-fire"},

	// Connections.
	{"conn.headers", "rpc/guard_listen.go",
		`srv.MaxHeaderBytes = maxHeaderBytes`, `srv.MaxHeaderBytes = mutantOr("limit/conn.headers", 0, maxHeaderBytes)`, "slow-headers"},
	{"conn.h2-streams", "rpc/guard_listen.go",
		`MaxConcurrentStreams:          h2Streams,`, `MaxConcurrentStreams: mutantOr("limit/conn.h2-streams", 250, h2Streams),`, "h2-streams"},
	{"conn.h2-receive-conn", "rpc/guard_listen.go",
		`MaxReceiveBufferPerConnection: h2Receive,`, `MaxReceiveBufferPerConnection: mutantOr("limit/conn.h2-receive-conn", 0, h2Receive),`, ""},
	{"conn.h2-receive-stream", "rpc/guard_listen.go",
		`MaxReceiveBufferPerStream:     h2Receive,`, `MaxReceiveBufferPerStream: mutantOr("limit/conn.h2-receive-stream", 0, h2Receive),`, ""},
	{"conn.h2-resets", "rpc/guard_reset.go",
		`return f.level > resetBurst`, `return f.level > resetBurst && !mutant("limit/conn.h2-resets")`, "h2-rapid-reset"},
	{"conn.idle-gives-way", "rpc/guard_conns.go",
		`if n == 0 || greedy == p.key`, `if n == 0 || mutant("limit/conn.idle-gives-way") || greedy == p.key`, ""},
	{"conn.proviso", "rpc/guard_conns.go",
		`mine+1 > t.held.held(greedy)-1 {`, `mine+1 > t.held.held(greedy)-1 && !mutant("limit/conn.proviso") {`, ""},
	{"conn.busy-stays", "rpc/guard_conns.go",
		`if p.busy || p.gone || p.key.perConn() {`, `if p.busy && !mutant("limit/conn.busy-stays") || p.gone || p.key.perConn() {`, ""},
	{"conn.streams", "rpc/guard_codec.go",
		`if c.server != nil {`, `if c.server != nil && !mutant("limit/conn.streams") {`, ""},
	{"conn.stop", "rpc/guard_listen.go",
		`g.clock.AfterFunc(stopGrace, gl.closeAll)`, `g.clock.AfterFunc(mutantOr("limit/conn.stop", 1<<50, stopGrace), gl.closeAll)`, "shutdown-under-fire"},
	{"client.fold", "rpc/guard_client.go",
		`if f.see(network, now) >= foldNetworks {`, `if f.see(network, now) >= foldNetworks && !mutant("limit/client.fold") {`, ""},
	{"client.forwarded", "rpc/guard_client.go",
		`seen > maxForwarded {`, `seen > maxForwarded && !mutant("limit/client.forwarded") {`, ""},

	// Bytes out.
	{"reply.small-reserve", "rpc/guard_reply.go",
		`newByteBudget(limit, limit/4, replySmall)`, `newByteBudget(limit, mutantOr("limit/reply.small-reserve", 0, limit/4), replySmall)`, ""},
	{"reply.reserved", "rpc/guard_reply.go",
		`c.books, c.kind, c.reserved = b, expected, expected.size`, `c.books, c.kind, c.reserved = b, expected, mutantOr("limit/reply.reserved", 0, expected.size)`, ""},
	{"reply.pressure", "rpc/guard_reply.go",
		`return s.InUse - s.Limit/2`, `return mutantOr("limit/reply.pressure", -1, s.InUse-s.Limit/2)`, ""},
	{"reply.build", "rpc/guard_reply.go",
		`tooLarge := c.books.max > 0 && c.output > c.books.max`, `tooLarge := c.books.max > 0 && c.output > c.books.max && !mutant("limit/reply.build")`, ""},
	{"stall.window", "rpc/guard_stall.go",
		`ok && s.count-mark.left < stallBytes {`, `ok && s.count-mark.left < stallBytes && !mutant("limit/stall.window") {`, ""},
	{"stall.pressed", "rpc/guard_stall.go",
		`if s.still(now) >= stallPressed {`, `if s.still(now) >= stallPressed && !mutant("limit/stall.pressed") {`, ""},
	{"stall.send-buffer", "rpc/guard_stall.go",
		`c.SetWriteBuffer(streamSendBuffer)`, `if !mutant("limit/stall.send-buffer") { c.SetWriteBuffer(streamSendBuffer) }`, ""},

	// Delivery.
	{"sub.result", "rpc/client_notifier.go",
		`if n := int64(len(result)); n > l.result {`, `if n := int64(len(result)); n > l.result && !mutant("limit/sub.result") {`, ""},
	{"sub.alone-fits", "rpc/client_notifier.go",
		`case s.items == 0:`, `case s.items == 0 && !mutant("limit/sub.alone-fits"):`, ""},
	{"sub.event-counts-once", "rpc/client_notifier.go",
		`case counted && s.events >= l.events:`, `case counted && s.events >= l.events, mutant("limit/sub.event-counts-once") && s.items >= l.events:`, ""},
	{"filter.proviso", "rpc/guard_filters.go",
		`b.held.held(client)+1 > most-1 {`, `b.held.held(client)+1 > most-1 && !mutant("limit/filter.proviso") {`, ""},
	{"filter.heaviest", "eth/filters/guard_polling.go",
		`held[p.client] > held[greediest]-g.polling[loser].queued {`, `held[p.client] > held[greediest]-g.polling[loser].queued && !mutant("limit/filter.heaviest") {`, ""},
}

func limitMutants() (out []*mutant) {
	for _, l := range configured {
		out = append(out, &mutant{name: "limit/" + l.name, config: l.off, cases: l.cases, pkg: "./rpc"})
	}
	for _, l := range built {
		out = append(out, &mutant{
			name: "limit/" + l.name, cases: l.cases, pkg: "./" + filepath.Dir(l.file),
			edits: []edit{{l.file, l.on, l.off}},
		})
	}
	return out
}

// collect returns all mutants: the hooks in patches, laid in fork, and the limits.
func collect(patches, fork string) ([]*mutant, error) {
	hooks, err := hookMutants(patches, fork)
	if err != nil {
		return nil, err
	}
	return append(hooks, limitMutants()...), nil
}
