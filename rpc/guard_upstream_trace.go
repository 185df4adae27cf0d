// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"

	"github.com/ethereum/go-ethereum/internal/telemetry"
	"github.com/ethereum/go-ethereum/log"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"
)

// A node that traces nothing pays for its spans all the same: OpenTelemetry's stand-in
// for a provider takes one process-wide lock for each tracer it is asked for, five times
// a call, and makes a span that records nothing, with a context around it, for the
// message and again for each entry of a batch. While that stand-in is in place, a guarded
// handler asks the one below, which takes no lock and has a single span: a batch of 100
// wraps its context once instead of 101 times, and all look-ups in it are that much
// shorter.
//
// Whatever could be told apart is left to what upstream asks: a provider of the server's
// own (SetTracerProvider of Server), one that the process sets at any later time, and
// requests that carry the trace of somebody else, whose span contexts are handed on. Not
// served is instrumentation from outside the process that patches the stand-in.

// idleTracing is the provider that was there before any was set, nil if its spans are
// real ones.
var idleTracing = func() trace.TracerProvider {
	p := otel.GetTracerProvider()
	if _, span := p.Tracer("").Start(context.Background(), ""); span.SpanContext().IsValid() {
		return nil
	}
	return p
}()

// traceQuietly spares h the spans that nobody sees.
func (h *handler) traceQuietly() {
	if h.tracerProvider == nil && idleTracing != nil {
		h.tracerProvider = quietTracing{}
	}
}

// quiet reports whether nobody traces what h does in ctx, and nobody would see what it
// logs of calls that go well.
func (h *handler) quiet(ctx context.Context) bool {
	return h.tracerProvider == quietTracing{} && tracesNothing(ctx) && !h.log.Enabled(ctx, log.LevelDebug)
}

func tracesNothing(ctx context.Context) bool {
	return idleTracing != nil && otel.GetTracerProvider() == idleTracing && !trace.SpanContextFromContext(ctx).IsValid()
}

// startEntrySpan stands in front of the function of that purpose. A quiet message's entry
// is spared the span's name and attributes too, eight allocations of its 23.
func (h *handler) startEntrySpan(ctx context.Context, msg *jsonrpcMessage) (context.Context, func(*error)) {
	if m := messageOf(ctx); m != nil && m.quiet {
		return ctx, endNothing
	}
	return telemetry.StartBatchCallSpan(ctx, h.tracer(), rpcInfoFromMessage(msg))
}

func endNothing(*error) {}

// quietTracing is the process's provider at a lower price while that is idleTracing.
type quietTracing struct{ embedded.TracerProvider }

// Tracer implements trace.TracerProvider.
func (quietTracing) Tracer(name string, opts ...trace.TracerOption) trace.Tracer {
	if current := otel.GetTracerProvider(); current != idleTracing {
		return current.Tracer(name, opts...)
	}
	return theQuietTracer
}

type quietTracer struct{ embedded.Tracer }

type quietSpan struct{ noop.Span }

var (
	theQuietTracer trace.Tracer = &quietTracer{}
	theQuietSpan   trace.Span   = &quietSpan{}
)

// Start implements trace.Tracer. A span inside another one is the same one.
func (*quietTracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	switch {
	case parent == theQuietSpan:
		return ctx, parent
	case parent.SpanContext().IsValid():
		return idleTracing.Tracer("").Start(ctx, name, opts...)
	}
	return trace.ContextWithSpan(ctx, theQuietSpan), theQuietSpan
}
