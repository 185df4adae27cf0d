// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

type traceProbe struct{ seen chan context.Context }

func (p *traceProbe) Context(ctx context.Context) { p.seen <- ctx }

// Nobody traces: a call's context has no span that is of a trace. A
// provider that is set later sees the calls that come later, also on handlers made before.
func TestGuardTracesQuietly(t *testing.T) {
	require.NotNil(t, idleTracing, "the process has a provider before the test sets one")
	srv, client := newTraceRig(t)
	var got string
	ask := func() context.Context {
		require.NoError(t, client.Call(&got, "probe_context"))
		return <-srv.seen
	}
	require.False(t, trace.SpanContextFromContext(ask()).IsValid())

	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	otel.SetTracerProvider(provider)
	t.Cleanup(func() { otel.SetTracerProvider(idleTracing) })
	require.True(t, trace.SpanFromContext(ask()).SpanContext().IsValid())
	client.Call(&got, "probe_context") // the span of the first has ended by now
	<-srv.seen
	require.NotEmpty(t, exporter.GetSpans())
}

// A batch wraps the context of its entries once, and asks for a span for none of them.
func TestGuardTracesBatchQuietly(t *testing.T) {
	srv, client := newTraceRig(t)
	counting := &countingTracer{Tracer: theQuietTracer}
	theQuietTracer = counting
	t.Cleanup(func() { theQuietTracer = counting.Tracer })
	batch := []BatchElem{{Method: "probe_context"}, {Method: "probe_context"}}
	require.NoError(t, client.BatchCall(batch))
	for range batch {
		require.Same(t, theQuietSpan, trace.SpanFromContext(<-srv.seen))
	}
	require.EqualValues(t, 1, counting.started.Load())
}

// countingTracer counts the spans that it is asked for.
type countingTracer struct {
	trace.Tracer
	started atomic.Int32
}

func (c *countingTracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	c.started.Add(1)
	return c.Tracer.Start(ctx, name, opts...)
}

// The entries of a batch that is traced have spans of their own, as without a guard.
func TestGuardTracesBatchEntries(t *testing.T) {
	srv, client := newTraceRig(t)
	exporter := tracetest.NewInMemoryExporter()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)))
	t.Cleanup(func() { otel.SetTracerProvider(idleTracing) })
	batch := []BatchElem{{Method: "probe_context"}, {Method: "probe_context"}}
	require.NoError(t, client.BatchCall(batch))
	first, second := trace.SpanContextFromContext(<-srv.seen), trace.SpanContextFromContext(<-srv.seen)
	require.True(t, first.IsValid() && second.IsValid())
	require.NotEqual(t, first.SpanID(), second.SpanID())
	require.Equal(t, first.TraceID(), second.TraceID())
}

func newTraceRig(t *testing.T) (*traceProbe, *Client) {
	g, err := NewGuard(DefaultGuardConfig, GuardEnv{Procs: 2, HTTPBodyLimit: defaultBodyLimit})
	require.NoError(t, err)
	srv := newPlainServer()
	t.Cleanup(srv.Stop)
	srv.SetGuard(g)
	probe := &traceProbe{make(chan context.Context, 4)}
	require.NoError(t, srv.RegisterName("probe", probe))
	client, err := DialOptions(context.Background(), "http://node", WithHTTPClient(&http.Client{Transport: serveDirectly{srv}}))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return probe, client
}

// serveDirectly has a server answer without a network.
type serveDirectly struct{ srv http.Handler }

func (d serveDirectly) RoundTrip(r *http.Request) (*http.Response, error) {
	w := &recordedReply{header: make(http.Header), status: http.StatusOK}
	r.RemoteAddr = "192.0.2.1:1000"
	d.srv.ServeHTTP(w, r)
	return &http.Response{StatusCode: w.status, Header: w.header, Body: noClose{strings.NewReader(w.body.String())}, Request: r}, nil
}

type recordedReply struct {
	header http.Header
	status int
	body   strings.Builder
}

func (w *recordedReply) Header() http.Header         { return w.header }
func (w *recordedReply) Write(b []byte) (int, error) { return w.body.Write(b) }
func (w *recordedReply) WriteHeader(status int)      { w.status = status }

type noClose struct{ *strings.Reader }

func (noClose) Close() error { return nil }

// A caller's trace goes on through a node that traces nothing, as it does without a guard.
func TestGuardTracesQuietlyForCallersTrace(t *testing.T) {
	caller := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, Remote: true})
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), caller)
	handed, span := quietTracing{}.Tracer("").Start(ctx, "call")
	require.Equal(t, caller.TraceID(), span.SpanContext().TraceID())
	require.Equal(t, span.SpanContext(), trace.SpanContextFromContext(handed))

	// A span that is some library's own no-op is as good as none.
	inner, span := quietTracing{}.Tracer("").Start(trace.ContextWithSpan(context.Background(), noop.Span{}), "call")
	require.Same(t, theQuietSpan, span)
	again, span := quietTracing{}.Tracer("").Start(inner, "entry")
	require.Same(t, theQuietSpan, span)
	require.Equal(t, inner, again)
}
