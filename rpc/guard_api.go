// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"errors"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/log"
)

// GuardAPI is what the guard adds to the admin namespace.
type GuardAPI struct {
	g *Guard
}

// APIs returns the services that let an operator see and steer the guard.
func (g *Guard) APIs() []API {
	if g == nil {
		return nil
	}
	return []API{{Namespace: "admin", Service: &GuardAPI{g}}}
}

// ConcurrencyLimit is the state of admission at one moment: the limits in force and
// the calls counted against them.
type ConcurrencyLimit struct {
	ExecutingRequests      int `json:"executingRequests"`
	QueuedRequests         int `json:"queuedRequests"`
	MaxConcurrent          int `json:"maxConcurrent"`
	MaxQueueSize           int `json:"maxQueueSize"`
	CPUExecutingRequests   int `json:"cpuExecutingRequests"`
	CPUMaxConcurrent       int `json:"cpuMaxConcurrent"`
	HeavyExecutingRequests int `json:"heavyExecutingRequests"`
	HeavyMaxConcurrent     int `json:"heavyMaxConcurrent"`
}

// ConcurrencyLimitArgs names the limits to change; what is left out stays.
type ConcurrencyLimitArgs struct {
	MaxConcurrent      *int `json:"maxConcurrent"`
	MaxQueueSize       *int `json:"maxQueueSize"`
	CPUMaxConcurrent   *int `json:"cpuMaxConcurrent"`
	HeavyMaxConcurrent *int `json:"heavyMaxConcurrent"`
}

// GetConcurrencyLimit returns the limits on calls and how much of them is used.
func (api *GuardAPI) GetConcurrencyLimit() ConcurrencyLimit {
	return concurrencyLimit(api.g.admission.gate.snapshot())
}

func concurrencyLimit(s gateSnapshot) ConcurrencyLimit {
	return ConcurrencyLimit{
		ExecutingRequests:      s.held[permitExec],
		QueuedRequests:         s.queued,
		MaxConcurrent:          s.limits.Concurrency,
		MaxQueueSize:           s.limits.Queue,
		CPUExecutingRequests:   s.held[permitCPU],
		CPUMaxConcurrent:       s.limits.CPU,
		HeavyExecutingRequests: s.held[permitHeavy],
		HeavyMaxConcurrent:     s.limits.Heavy,
	}
}

// SetConcurrencyLimit changes limits while the node runs. A higher one admits waiting
// calls at once; below a lower one nobody is admitted until enough calls have ended.
// A limit that makes no sense is refused and changes nothing.
func (api *GuardAPI) SetConcurrencyLimit(args *ConcurrencyLimitArgs) (ConcurrencyLimit, error) {
	if args == nil {
		return api.GetConcurrencyLimit(), errors.New("no limits given")
	}
	before, after, err := api.g.admission.gate.changeLimits(limitChange{
		Concurrency: args.MaxConcurrent,
		Queue:       args.MaxQueueSize,
		CPU:         args.CPUMaxConcurrent,
		Heavy:       args.HeavyMaxConcurrent,
	})
	if err == nil {
		log.Info("RPC concurrency limits changed", "before", before, "after", after)
	}
	return api.GetConcurrencyLimit(), err
}

// RPCCall is a call that executes or waits.
type RPCCall struct {
	Method  string `json:"method"`
	Class   string `json:"class"`
	Client  string `json:"client"`
	Waiting bool   `json:"waiting"`
	Age     string `json:"age"` // since it arrived
}

// RpcCalls returns the calls executing and waiting now, without light ones.
func (api *GuardAPI) RpcCalls() []RPCCall {
	calls := api.g.admission.gate.calls()
	list := make([]RPCCall, len(calls))
	for i, c := range calls {
		list[i] = RPCCall{c.method, c.class.String(), c.client.String(), c.waiting, c.age.Round(time.Millisecond).String()}
	}
	return list
}

// RPCStatus is every limit of the guard and how much of it is used.
type RPCStatus struct {
	DryRun        bool             `json:"dryRun"`
	Admission     AdmissionStatus  `json:"admission"`
	Intake        map[string]int64 `json:"intake"` // request bytes and connections, as in metrics
	Reply         replyStatus      `json:"reply"`
	Subscriptions map[string]int64 `json:"subscriptions"`
	Filters       map[string]int64 `json:"filters"` // polling ones
	Limits        GuardConfig      `json:"limits"`  // at start, derived ones filled in
}

// AdmissionStatus is the admission part of RPCStatus.
type AdmissionStatus struct {
	ConcurrencyLimit
	ParkedRequests int                   `json:"parkedRequests"`
	ParkedMax      int                   `json:"parkedMax"`
	Clients        int                   `json:"clients"` // with calls executing or waiting
	Waiting        map[string]int        `json:"waiting"` // by class
	High           map[string]int        `json:"high"`    // most that there ever were
	Books          map[string]bookTotals `json:"books"`   // by class, and of trusted clients
}

// RpcStatus returns every limit and how much of it is used.
func (api *GuardAPI) RpcStatus() RPCStatus {
	g := api.g
	intake := make(map[string]int64)
	for _, gauge := range g.intakeGauges() {
		intake[strings.TrimPrefix(gauge.name, "rpc/")] = gauge.read()
	}
	return RPCStatus{
		DryRun:    g.cfg.DryRun,
		Admission: g.admission.report(),
		Intake:    intake,
		Reply:     g.replies.status(),
		Subscriptions: map[string]int64{
			"active": g.subs.active.now.Load(), "high": g.subs.active.peak.Load(),
			"queuedBytes": g.subs.queued.now.Load(), "queuedBytesHigh": g.subs.queued.peak.Load(),
			"refused": g.subs.refused.Load(), "dropped": g.subs.dropped.Load(),
		},
		Filters: g.filters.status(),
		Limits:  g.cfg,
	}
}

func (a *guardAdmission) report() AdmissionStatus {
	s := a.gate.snapshot()
	status := AdmissionStatus{
		ConcurrencyLimit: concurrencyLimit(s),
		ParkedRequests:   s.held[permitParked],
		ParkedMax:        s.limits.Parked,
		Clients:          s.clients,
		Waiting:          make(map[string]int),
		High: map[string]int{
			"executing": s.highHeld[permitExec], "cpu": s.highHeld[permitCPU], "heavy": s.highHeld[permitHeavy],
			"parked": s.highHeld[permitParked], "queued": s.highQueued,
		},
		Books: map[string]bookTotals{"trusted": a.trusted.total()},
	}
	for class := range numClasses {
		status.Books[class.String()] = a.gate.book(class)
		if class != classLight && class != classParked {
			status.Waiting[class.String()] = s.waiting[class]
		}
	}
	return status
}
