// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/metrics"
)

// admissionWaitTimer is how long calls waited that were admitted in the end.
var admissionWaitTimer = metrics.NewRegisteredResettingTimer("rpc/admission/wait", nil)

// admissionMetrics publishes the books and gauges of admission. The gate counts for
// itself, always and exactly; metric objects are off by default and are brought up to
// date every metricsInterval when they are on.
type admissionMetrics struct {
	executing, waiting, cpu, heavy, parked                          metricGauge
	executingHigh, waitingHigh, cpuHigh, heavyHigh, parkedHigh      metricGauge
	limitConcurrency, limitQueue, limitCPU, limitHeavy, limitParked metricGauge
	total                                                           bookMetrics
	classes                                                         [numClasses]bookMetrics
	trusted                                                         bookMetrics
}

type bookMetrics struct {
	arrived, served, failed, cancelled, refused metricGauge
	reasons                                     map[string]metricGauge
}

// metricsInterval is how far the guard's metrics may lag behind its books.
const metricsInterval = 100 * time.Millisecond

var publishAdmission struct {
	once sync.Once
	mu   sync.Mutex
	of   []*guardAdmission
}

// PublishMetrics has the guard's metrics kept up to date from now on, whenever metrics
// are on. The guards of one process are added up.
func (g *Guard) PublishMetrics() {
	if g == nil {
		return
	}
	g.publishIntakeMetrics()
	g.replies.publish()
	p := &publishAdmission
	p.mu.Lock()
	p.of = append(p.of, g.admission)
	p.mu.Unlock()
	p.once.Do(func() {
		m := newAdmissionMetrics(metrics.DefaultRegistry)
		go func() {
			for range time.Tick(metricsInterval) {
				if !metricsEnabled() {
					continue // they are turned on after the node is made
				}
				p.mu.Lock()
				m.update(p.of)
				p.mu.Unlock()
			}
		}()
	})
}

func newAdmissionMetrics(r metrics.Registry) *admissionMetrics {
	gauge := func(name string) metricGauge {
		return metrics.GetOrRegisterGauge("rpc/admission/"+name, r)
	}
	book := func(under string) bookMetrics {
		b := bookMetrics{
			arrived:   gauge(under + "arrived"),
			served:    gauge(under + "served"),
			failed:    gauge(under + "failed"),
			cancelled: gauge(under + "cancelled"),
			refused:   gauge(under + "refused"),
			reasons:   make(map[string]metricGauge),
		}
		for _, reason := range refusalReasons {
			if reason != "" {
				b.reasons[reason] = gauge(under + "refused/" + reason)
			}
		}
		return b
	}
	m := &admissionMetrics{
		executing: gauge("executing"), executingHigh: gauge("executing/high"),
		waiting: gauge("waiting"), waitingHigh: gauge("waiting/high"),
		cpu: gauge("executing/cpu"), cpuHigh: gauge("executing/cpu/high"),
		heavy: gauge("executing/heavy"), heavyHigh: gauge("executing/heavy/high"),
		parked: gauge("executing/parked"), parkedHigh: gauge("executing/parked/high"),
		limitConcurrency: gauge("limit/concurrency"),
		limitQueue:       gauge("limit/queue"),
		limitCPU:         gauge("limit/cpu"),
		limitHeavy:       gauge("limit/heavy"),
		limitParked:      gauge("limit/parked"),
		total:            book(""),
		trusted:          book("trusted/"),
	}
	for class := range numClasses {
		m.classes[class] = book(class.String() + "/")
	}
	return m
}

func (m *admissionMetrics) update(of []*guardAdmission) {
	var (
		sum      gateSnapshot
		total    bookTotals
		classes  [numClasses]bookTotals
		trusted  bookTotals
		limitSum = func(to *int, n int) {
			if *to += n; *to < n {
				*to = n // saturates
			}
		}
	)
	for _, a := range of {
		s := a.gate.snapshot()
		for kind := range s.held {
			sum.held[kind] += s.held[kind]
			sum.highHeld[kind] += s.highHeld[kind]
		}
		sum.queued += s.queued
		sum.highQueued += s.highQueued
		limitSum(&sum.limits.Concurrency, s.limits.Concurrency)
		limitSum(&sum.limits.Queue, s.limits.Queue)
		limitSum(&sum.limits.CPU, s.limits.CPU)
		limitSum(&sum.limits.Heavy, s.limits.Heavy)
		limitSum(&sum.limits.Parked, s.limits.Parked)
		for class := range classes {
			t := a.gate.book(callClass(class))
			classes[class].add(&t)
			total.add(&t)
		}
		t := a.trusted.total()
		trusted.add(&t)
	}
	m.executing.Update(int64(sum.held[permitExec]))
	m.executingHigh.Update(int64(sum.highHeld[permitExec]))
	m.cpu.Update(int64(sum.held[permitCPU]))
	m.cpuHigh.Update(int64(sum.highHeld[permitCPU]))
	m.heavy.Update(int64(sum.held[permitHeavy]))
	m.heavyHigh.Update(int64(sum.highHeld[permitHeavy]))
	m.parked.Update(int64(sum.held[permitParked]))
	m.parkedHigh.Update(int64(sum.highHeld[permitParked]))
	m.waiting.Update(int64(sum.queued))
	m.waitingHigh.Update(int64(sum.highQueued))
	m.limitConcurrency.Update(int64(sum.limits.Concurrency))
	m.limitQueue.Update(int64(sum.limits.Queue))
	m.limitCPU.Update(int64(sum.limits.CPU))
	m.limitHeavy.Update(int64(sum.limits.Heavy))
	m.limitParked.Update(int64(sum.limits.Parked))
	m.total.update(&total)
	m.trusted.update(&trusted)
	for class := range classes {
		m.classes[class].update(&classes[class])
	}
}

func (b *bookMetrics) update(t *bookTotals) {
	b.arrived.Update(int64(t.Arrived))
	b.served.Update(int64(t.Served))
	b.failed.Update(int64(t.Failed))
	b.cancelled.Update(int64(t.Cancelled))
	b.refused.Update(int64(t.refusedSum()))
	for reason, g := range b.reasons {
		g.Update(int64(t.Refused[reason]))
	}
}
