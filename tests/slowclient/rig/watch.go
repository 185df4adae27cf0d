// SPDX-License-Identifier: LGPL-3.0-or-later

package rig

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// machineTicks reads how long the machine's processors have been busy in all.
func machineTicks() (busy time.Duration, ok bool) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, false
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	f := strings.Fields(line) // cpu user nice system idle iowait irq softirq steal
	if len(f) < 9 {
		return 0, false
	}
	for _, i := range []int{1, 2, 3, 6, 7, 8} {
		n, _ := strconv.ParseInt(f[i], 10, 64)
		busy += time.Duration(n) * time.Second / 100
	}
	return busy, true
}

// Others is the share of the machine's processors, 0 to 1, that neither the node
// nor this process has used since the watch began.
func (w *Watch) Others() float64 {
	busy, ok := machineTicks()
	elapsed := time.Since(w.begun)
	if !ok || elapsed <= 0 {
		return 0
	}
	self, _ := Look(os.Getpid())
	others := busy - w.busy - w.CPU() - (self.CPU - w.self.CPU)
	return min(1, max(0, float64(others)/float64(elapsed)/float64(runtime.NumCPU())))
}

// DefaultMemoryLimit is how far a node may grow before Watch ends it.
const DefaultMemoryLimit = 3 << 30

// Sample is one look at a process from outside.
type Sample struct {
	RSS int64         // bytes resident
	CPU time.Duration // processor time used since it began, user and system
}

// Look samples the process. On systems without /proc it reports ok false.
func Look(pid int) (s Sample, ok bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return s, false
	}
	// The command's name may hold spaces; what follows it starts at the last ")".
	_, rest, found := strings.Cut(string(stat[max(0, strings.LastIndexByte(string(stat), ')')):]), ") ")
	f := strings.Fields(rest)
	if !found || len(f) < 22 {
		return s, false
	}
	utime, _ := strconv.ParseInt(f[11], 10, 64)
	stime, _ := strconv.ParseInt(f[12], 10, 64)
	pages, _ := strconv.ParseInt(f[21], 10, 64)
	const ticks = 100 // USER_HZ, the same on every Linux that Go supports
	s.CPU = time.Duration(utime+stime) * time.Second / ticks
	s.RSS = pages * int64(os.Getpagesize())
	return s, true
}

// Watch follows a node's memory ten times a second, remembers the peak, and ends
// the node when it exceeds the limit.
type Watch struct {
	node  *Node
	limit int64
	start Sample
	self  Sample
	busy  time.Duration // the machine's processors, when it began
	begun time.Time
	stop  chan struct{}
	done  chan struct{}

	mu     sync.Mutex
	peak   int64
	killed int64 // RSS at which it was ended; 0: it was not
}

// NewWatch begins to follow the node. A limit of 0 is DefaultMemoryLimit.
func NewWatch(n *Node, limit int64) *Watch {
	if limit == 0 {
		limit = DefaultMemoryLimit
	}
	w := &Watch{node: n, limit: limit, begun: time.Now(), stop: make(chan struct{}), done: make(chan struct{})}
	w.start, _ = Look(n.Pid)
	w.self, _ = Look(os.Getpid())
	w.busy, _ = machineTicks()
	w.peak = w.start.RSS
	go w.loop()
	return w
}

func (w *Watch) loop() {
	defer close(w.done)
	if w.node.Pid == 0 {
		return
	}
	t := time.NewTicker(100 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-w.node.Done():
			return
		case <-t.C:
		}
		s, ok := Look(w.node.Pid)
		if !ok {
			continue
		}
		w.mu.Lock()
		w.peak = max(w.peak, s.RSS)
		over := s.RSS > w.limit
		if over {
			w.killed = s.RSS
		}
		w.mu.Unlock()
		if over {
			w.node.Kill()
			return
		}
	}
}

// Start is the sample taken when the watch began.
func (w *Watch) Start() Sample { return w.start }

// Peak is the most memory seen, and Killed what the node held when it was ended
// for it (0: it was not).
func (w *Watch) Peak() int64 { w.mu.Lock(); defer w.mu.Unlock(); return w.peak }

// Killed: see Peak.
func (w *Watch) Killed() int64 { w.mu.Lock(); defer w.mu.Unlock(); return w.killed }

// CPU is the processor time used since the watch began.
func (w *Watch) CPU() time.Duration {
	if s, ok := Look(w.node.Pid); ok {
		return s.CPU - w.start.CPU
	}
	return 0
}

// Stop ends the watching. It may be called again.
func (w *Watch) Stop() {
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	<-w.done
}

// Busy waits until the node uses a third of a processor over a fifth of a second,
// at most limit, and reports whether it did: whoever asked for work has it.
func (n *Node) Busy(ctx context.Context, limit time.Duration) bool {
	const look = 200 * time.Millisecond
	for end := time.Now().Add(limit); ; {
		if n.Load(ctx, look) >= 0.3 {
			return true
		}
		if time.Now().After(end) || ctx.Err() != nil || !n.Alive() {
			return false
		}
	}
}

// CPUOver measures the processor time that the node uses during d.
func (n *Node) CPUOver(ctx context.Context, d time.Duration) time.Duration {
	a, _ := Look(n.Pid)
	Sleep(ctx, d)
	b, _ := Look(n.Pid)
	return b.CPU - a.CPU
}

// Load is how many processors the node uses during about d.
func (n *Node) Load(ctx context.Context, d time.Duration) float64 {
	a, _ := Look(n.Pid)
	begun := time.Now()
	Sleep(ctx, d)
	b, _ := Look(n.Pid)
	return float64(b.CPU-a.CPU) / float64(time.Since(begun))
}

// Quiet waits until the node uses less than a fifth of a processor over a quarter of
// a second, at most limit, and reports whether it got there.
func (n *Node) Quiet(ctx context.Context, limit time.Duration) bool {
	const look = 250 * time.Millisecond
	for end := time.Now().Add(limit); ; {
		if n.Load(ctx, look) < 0.2 {
			return true
		}
		if time.Now().After(end) || ctx.Err() != nil || !n.Alive() {
			return false
		}
	}
}

var debugClient = &http.Client{Timeout: 20 * time.Second}

// Goroutines asks the node's pprof page; -1 when there is none.
func (n *Node) Goroutines() int {
	if n.Debug == "" {
		return -1
	}
	resp, err := debugClient.Get("http://" + n.Debug + "/debug/pprof/goroutine?debug=1")
	if err != nil {
		return -1
	}
	defer resp.Body.Close()
	defer io.Copy(io.Discard, resp.Body)
	line, _ := bufio.NewReader(resp.Body).ReadString('\n')
	f := strings.Fields(line)
	if len(f) == 0 {
		return -1
	}
	k, err := strconv.Atoi(f[len(f)-1])
	if err != nil {
		return -1
	}
	return k
}

// Heap makes the node collect its garbage and tells what is still allocated; -1
// when it cannot be asked.
func (n *Node) Heap() int64 {
	if n.Debug == "" {
		return -1
	}
	resp, err := debugClient.Get("http://" + n.Debug + "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return -1
	}
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(nil, 1<<20)
	heap := int64(-1)
	for sc.Scan() {
		if v, ok := strings.CutPrefix(sc.Text(), "# HeapAlloc = "); ok {
			heap, _ = strconv.ParseInt(v, 10, 64)
		}
	}
	return heap
}

// FreeMemory has the node give back what it does not need, so that growth is seen
// from the first byte on. A node that cannot be asked stays as it is.
func (n *Node) FreeMemory() {
	c, err := DialIPC(n)
	if err != nil {
		return
	}
	defer c.Close()
	c.Call(10*time.Second, "debug_freeOSMemory")
}

// Metrics is the node's metrics page: names with underscores, as Prometheus has
// them. Quantiles are left out.
type Metrics map[string]float64

// Metrics reads the page.
func (n *Node) Metrics() (Metrics, error) {
	if n.Page == "" {
		return nil, fmt.Errorf("no metrics page")
	}
	resp, err := debugClient.Get("http://" + n.Page + "/debug/metrics/prometheus")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return parseMetrics(resp.Body)
}

func parseMetrics(r io.Reader) (Metrics, error) {
	m := make(Metrics)
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		line := sc.Text()
		if strings.HasPrefix(line, "#") || strings.Contains(line, "{") {
			continue
		}
		if name, val, ok := strings.Cut(line, " "); ok {
			if v, err := strconv.ParseFloat(val, 64); err == nil {
				m[name] = v
			}
		}
	}
	return m, sc.Err()
}

// Sleep waits for d or the context's end.
func Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Until asks cond every 20 ms until it holds; false after limit.
func Until(ctx context.Context, limit time.Duration, cond func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		if cond() {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		Sleep(ctx, 20*time.Millisecond)
	}
}
