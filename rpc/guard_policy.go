// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"fmt"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// refusalMessage is the message of every call refused at the gate, whatever the
// reason: clients tell by it and the code that they may try again.
const refusalMessage = "Request queue is full"

// guardAdmission is what all servers of a node share to decide about calls.
type guardAdmission struct {
	gate    *gate
	classes *classifier
	refused *callScope // of every refused call
	status  int        // HTTP status of a call refused alone
	trusted classBook  // calls of trusted clients, which pass no gate
}

// newGuardAdmission builds what cfg, resolved and valid, describes.
func newGuardAdmission(cfg *GuardConfig, clock mclock.Clock) (*guardAdmission, error) {
	c := &cfg.Admission
	g, err := newGate(gateConfig{
		gateLimits: gateLimits{Concurrency: c.Concurrency, Queue: c.Queue, CPU: c.CPU, Heavy: c.Heavy, Parked: c.Parked},
		Wait:       c.Wait,
		DryRun:     cfg.DryRun,
	}, clock)
	if err != nil {
		return nil, fmt.Errorf("--rpc.admission: %w", err)
	}
	classes, err := newClassifier([numClasses][]string{
		classLight:   c.LightMethods,
		classNormal:  c.NormalMethods,
		classCompute: c.ComputeMethods,
		classHeavy:   c.HeavyMethods,
		classParked:  c.ParkedMethods,
	})
	if err != nil {
		return nil, err // names the flag
	}
	refused, err := newRefusedCall(c.Code)
	if err != nil {
		return nil, err
	}
	return &guardAdmission{gate: g, classes: classes, refused: refused, status: c.Status}, nil
}

// countOversizedBatch notes a batch over the limit of elements. It is refused as a
// whole, so it is one call that arrived and failed.
func (a *guardAdmission) countOversizedBatch() {
	a.gate.books[classNormal].arrived.Add(1)
	a.gate.books[classNormal].failed.Add(1)
}
