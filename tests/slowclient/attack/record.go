// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"rpcguard/tests/slowclient/rig"
)

// Record is the outcome of one case, one JSON object.
type Record struct {
	Case     string            `json:"case"`
	Number   int               `json:"number,omitempty"`
	Family   string            `json:"family"`
	Why      string            `json:"why"`
	Verdict  Verdict           `json:"verdict"`
	Reason   string            `json:"reason,omitempty"` // first bound broken, or why not applicable
	Figures  []Figure          `json:"figures,omitempty"`
	Polite   *rig.PoliteReport `json:"polite,omitempty"`
	RSS      int64             `json:"rss"`               // growth at the peak, bytes
	CPU      float64           `json:"cpu"`               // processor seconds used
	Seconds  float64           `json:"seconds"`           // the case took
	Attempts int               `json:"attempts"`          // above 1: judged again, see Options.Retries
	Binary   string            `json:"binary"`            // version
	Earlier  []string          `json:"earlier,omitempty"` // reasons of the attempts before
	Unseen   []string          `json:"unseen,omitempty"`  // bounds that cannot be judged from where the suite stands
	Round    int               `json:"round,omitempty"`   // of a repeated run, from 1
}

// Key tells records of one run apart.
func (r *Record) Key() string { return fmt.Sprint(r.Binary, " ", r.Case, " ", max(1, r.Round)) }

// Late reports whether the polite client's latency broke the case.
func (r *Record) Late() bool {
	return slices.ContainsFunc(r.Figures, func(f Figure) bool { return f.Name == politeP99 && !f.OK })
}

const politeP99 = "polite p99"

// Judge adds a latency to a record that is complete.
func (r *Record) Judge(name string, value, bound time.Duration) {
	f := Figure{name, value.Seconds(), "s", bound.Seconds(), value <= bound}
	r.Figures = append(r.Figures, f)
	if f.OK {
		return
	}
	reason := fmt.Sprintf("%s %s, over %s", name, formatDuration(value), formatDuration(bound))
	if r.Verdict == Broken {
		reason = r.Reason + "; " + reason
	}
	r.Verdict, r.Reason = Broken, reason
}

// Summary of the record in one line of figures.
func (r *Record) Summary() string {
	var parts []string
	if r.Polite != nil && r.Polite.Calls > 0 {
		parts = append(parts, "p99 "+formatDuration(r.Polite.P99))
		if r.Polite.Heads > 0 {
			parts = append(parts, "gap "+formatDuration(r.Polite.HeadGap))
		}
		if r.Polite.Failed > 0 {
			parts = append(parts, fmt.Sprintf("failed %d", r.Polite.Failed))
		}
	}
	for _, f := range r.Figures {
		if !strings.HasPrefix(f.Name, "polite") {
			parts = append(parts, f.String())
		}
	}
	if r.RSS > 8<<20 {
		parts = append(parts, "+"+FormatBytes(r.RSS))
	}
	if len(r.Unseen) > 0 {
		parts = append(parts, "not judged: "+strings.Join(r.Unseen, ", "))
	}
	return strings.Join(parts, ", ")
}
