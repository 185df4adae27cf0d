// SPDX-License-Identifier: LGPL-3.0-or-later

package logger

import (
	"bytes"
	"testing"

	"github.com/ethereum/go-ethereum/core/vm"
)

// Programs that end in every way there is, with stack, memory, storage and return
// data in their steps.
var guardPrograms = map[string]string{
	"stops":     "600160020100",
	"stores":    "6001600055600054600160015500",
	"remembers": "60ff60005260206000f3",
	"reverts":   "60ff60005260206000fd",
	"fails":     "600160005260fe21",
	"loops":     "5b600056",
	"nothing":   "",
	"calls":     "600060006000600060006004620186a0f13d600060003e00",
}

func traceGuardProgram(t *testing.T, code string, cfg *Config) *GuardLog {
	t.Helper()
	return traceGuardSteps(code, cfg, func(*GuardLog) {})
}

func TestGuardResultEqualsGetResult(t *testing.T) {
	for name, code := range guardPrograms {
		for _, cfg := range []*Config{
			nil,
			{EnableMemory: true, EnableReturnData: true},
			{DisableStack: true, DisableStorage: true},
			{Limit: 500},
		} {
			want, err := traceGuardProgram(t, code, cfg).StructLogger.GetResult()
			if err != nil {
				t.Fatal(err)
			}
			l := traceGuardProgram(t, code, cfg)
			l.Take()
			steps, size := l.Steps(), l.Size()
			got, err := l.GetResult()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s, %+v:\n got %.400s\nwant %.400s", name, cfg, got, want)
			}
			if code != "" && (steps == 0 || size == 0) {
				t.Errorf("%s: %d steps of %d bytes", name, steps, size)
			}
			if cap(got) > len(got)+64+size/8 {
				t.Errorf("%s: %d bytes allocated for %d", name, cap(got), len(got))
			}
			apart := traceGuardSteps(code, cfg, func(l *GuardLog) { l.Take() }) // a limit holds for all
			if got, err = apart.GetResult(); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s, %+v, taken one by one (%v):\n got %.400s\nwant %.400s", name, cfg, err, got, want)
			}
		}
	}
}

func TestGuardResultOfStoppedTrace(t *testing.T) {
	l := traceGuardProgram(t, guardPrograms["loops"], nil)
	l.Stop(errGuardTest)
	if _, err := l.GetResult(); err != errGuardTest {
		t.Errorf("error %v", err)
	}
}

var errGuardTest = vm.ErrOutOfGas

// Steps taken one by one, as a trace grows, make the same text as all at once.
func TestGuardLogKeepsNoStepApart(t *testing.T) {
	steps := traceGuardProgram(t, guardPrograms["loops"], nil).logs
	want, _ := (&StructLogger{logs: steps}).GetResult()
	l := NewGuardLog(nil)
	for _, step := range steps {
		l.logs = append(l.logs, step)
		if n := l.Take(); n < 2 || len(l.logs) != 0 {
			t.Fatalf("%d bytes taken, %d steps left", n, len(l.logs))
		}
	}
	if most := l.Size()/guardChunk + 2; len(l.chunks) > most {
		t.Errorf("%d pieces for %d bytes", len(l.chunks), l.Size())
	}
	if got, err := l.GetResult(); err != nil || !bytes.Equal(got, want) {
		t.Errorf("not the same text (%v)", err)
	}
}

func BenchmarkGuardResult(b *testing.B) {
	for name, get := range map[string]func(*GuardLog) int{
		"stock": func(l *GuardLog) int { r, _ := l.StructLogger.GetResult(); return len(r) },
		"guard": func(l *GuardLog) int { r, _ := l.GetResult(); return len(r) },
	} {
		b.Run(name, func(b *testing.B) {
			steps := traceGuardProgram(new(testing.T), guardPrograms["loops"], nil).logs
			b.ReportAllocs()
			for b.Loop() {
				l := NewGuardLog(nil)
				for i := 0; i < 20; i++ {
					l.logs = append(l.logs, steps...)
				}
				b.SetBytes(int64(get(l)))
			}
		})
	}
}
