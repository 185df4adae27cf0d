// SPDX-License-Identifier: LGPL-3.0-or-later

package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// H2 is one HTTP/2 connection in clear text whose frames a recipe writes itself.
// It keeps no flow control of its own: recipes send less than the server's first
// windows, or do so on purpose.
type H2 struct {
	Net *MeterConn

	wmu  sync.Mutex // frames are written whole
	fr   *http2.Framer
	hbuf bytes.Buffer
	henc *hpack.Encoder
	next uint32
	fwd  string

	paused chan struct{} // closed: nothing is read any more
	closed chan struct{} // by Close

	mu         sync.Mutex
	streams    map[uint32]*h2Stream
	maxStreams uint32
	goAway     bool
	ended      error

	settled chan struct{}
	gone    chan struct{}
}

type h2Stream struct {
	status int
	body   []byte
	got    int64
	reset  http2.ErrCode
	err    error
	closed chan struct{}
}

// H2Result is what a stream brought.
type H2Result struct {
	Status int // 0: no headers came
	Body   []byte
	Reset  bool // ended by RST_STREAM
}

// ErrNoH2 is returned for a server that does not speak HTTP/2 in clear text.
var ErrNoH2 = errors.New("no HTTP/2 in clear text")

// DialH2 connects with prior knowledge and waits for the server's settings.
func DialH2(ctx context.Context, addr string, d Dialer) (*H2, error) {
	c, err := d.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	h := &H2{
		Net: &MeterConn{Conn: c}, next: 1, fwd: d.Forward, streams: make(map[uint32]*h2Stream),
		settled: make(chan struct{}), gone: make(chan struct{}), paused: make(chan struct{}), closed: make(chan struct{}),
	}
	h.fr = http2.NewFramer(h.Net, h.Net)
	h.fr.SetMaxReadFrameSize(1 << 20)
	h.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	h.henc = hpack.NewEncoder(&h.hbuf)
	if _, err := h.Net.Write([]byte(http2.ClientPreface)); err != nil {
		c.Close()
		return nil, err
	}
	if err := h.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 24}); err != nil {
		c.Close()
		return nil, err
	}
	h.fr.WriteWindowUpdate(0, 1<<30)
	go h.readLoop()
	select {
	case <-h.settled:
		return h, nil
	case <-h.gone:
		return nil, ErrNoH2
	case <-time.After(5 * time.Second):
		c.Close()
		return nil, ErrNoH2
	case <-ctx.Done():
		c.Close()
		return nil, ctx.Err()
	}
}

func (h *H2) readLoop() {
	var once sync.Once
	var err error
	defer func() {
		h.Net.Close()
		h.mu.Lock()
		h.ended = err
		for _, s := range h.streams {
			s.end(err)
		}
		h.mu.Unlock()
		close(h.gone)
	}()
	for {
		select {
		case <-h.paused:
			<-h.closed
			return
		default:
		}
		var f http2.Frame
		if f, err = h.fr.ReadFrame(); err != nil {
			return
		}
		h.mu.Lock()
		s := h.streams[f.Header().StreamID]
		h.mu.Unlock()
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if f.IsAck() {
				continue
			}
			if v, ok := f.Value(http2.SettingMaxConcurrentStreams); ok {
				h.mu.Lock()
				h.maxStreams = v
				h.mu.Unlock()
			}
			h.write(func() error { return h.fr.WriteSettingsAck() })
			once.Do(func() { close(h.settled) })
		case *http2.PingFrame:
			if !f.IsAck() {
				h.write(func() error { return h.fr.WritePing(true, f.Data) })
			}
		case *http2.GoAwayFrame:
			h.mu.Lock()
			h.goAway = true
			h.mu.Unlock()
		case *http2.MetaHeadersFrame:
			if s != nil {
				s.status, _ = strconv.Atoi(f.PseudoValue("status"))
				if f.StreamEnded() {
					s.end(nil)
				}
			}
		case *http2.DataFrame:
			if s != nil {
				s.got += int64(len(f.Data()))
				if len(s.body) < 1<<16 {
					s.body = append(s.body, f.Data()...)
				}
				if f.StreamEnded() {
					s.end(nil)
				}
			}
		case *http2.RSTStreamFrame:
			if s != nil {
				s.reset = f.ErrCode
				s.end(fmt.Errorf("reset: %v", f.ErrCode))
			}
		}
	}
}

func (s *h2Stream) end(err error) {
	select {
	case <-s.closed:
	default:
		s.err = err
		close(s.closed)
	}
}

func (h *H2) write(f func() error) error {
	h.wmu.Lock()
	defer h.wmu.Unlock()
	h.Net.SetWriteDeadline(time.Now().Add(20 * time.Second))
	return f()
}

// Open begins a POST with the content length given (below 0: none announced) and
// further headers in pairs; end also ends it.
func (h *H2) Open(length int64, end bool, header ...string) (uint32, error) {
	var id uint32
	err := h.write(func() error {
		h.hbuf.Reset()
		field := func(k, v string) { h.henc.WriteField(hpack.HeaderField{Name: k, Value: v}) }
		field(":method", "POST")
		field(":scheme", "http")
		field(":path", "/")
		field(":authority", "localhost")
		field("content-type", "application/json")
		if length >= 0 {
			field("content-length", strconv.FormatInt(length, 10))
		}
		if h.fwd != "" {
			field("x-forwarded-for", h.fwd)
		}
		for i := 0; i+1 < len(header); i += 2 {
			field(header[i], header[i+1])
		}
		id = h.next
		h.next += 2
		h.mu.Lock()
		h.streams[id] = &h2Stream{closed: make(chan struct{})}
		h.mu.Unlock()

		// A block larger than a frame goes on in continuations.
		const frame = 16384
		block := h.hbuf.Bytes()
		first := block[:min(frame, len(block))]
		block = block[len(first):]
		err := h.fr.WriteHeaders(http2.HeadersFrameParam{
			StreamID: id, BlockFragment: first, EndStream: end, EndHeaders: len(block) == 0,
		})
		for err == nil && len(block) > 0 {
			part := block[:min(frame, len(block))]
			block = block[len(part):]
			err = h.fr.WriteContinuation(id, len(block) == 0, part)
		}
		return err
	})
	return id, err
}

// Data sends body bytes in frames.
func (h *H2) Data(id uint32, p []byte, end bool) error {
	return h.write(func() error {
		for len(p) > 16384 {
			if err := h.fr.WriteData(id, false, p[:16384]); err != nil {
				return err
			}
			p = p[16384:]
		}
		return h.fr.WriteData(id, end, p)
	})
}

// Reset gives a stream up and forgets it.
func (h *H2) Reset(id uint32) error {
	h.mu.Lock()
	delete(h.streams, id)
	h.mu.Unlock()
	return h.write(func() error { return h.fr.WriteRSTStream(id, http2.ErrCodeCancel) })
}

// BreakRule sends a window update by 0, for which a server has to reset the stream itself
// (RFC 9113, section 6.9).
func (h *H2) BreakRule(id uint32) error {
	return h.write(func() error { return h.fr.WriteRawFrame(http2.FrameWindowUpdate, 0, id, make([]byte, 4)) })
}

// Result waits for a stream's end.
func (h *H2) Result(id uint32, limit time.Duration) (H2Result, error) {
	h.mu.Lock()
	s := h.streams[id]
	h.mu.Unlock()
	if s == nil {
		return H2Result{}, errors.New("no such stream")
	}
	select {
	case <-s.closed:
		return H2Result{Status: s.status, Body: s.body, Reset: s.reset != 0}, s.err
	case <-h.gone:
		return H2Result{}, errors.New("connection ended")
	case <-time.After(limit):
		return H2Result{}, fmt.Errorf("no answer in %v", limit)
	}
}

// MaxStreams is the server's limit; 0: it set none.
func (h *H2) MaxStreams() int { h.mu.Lock(); defer h.mu.Unlock(); return int(h.maxStreams) }

// Ended reports whether the server has ended the connection or said that it will.
func (h *H2) Ended() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.goAway || h.ended != nil
}

// Gone is closed when the connection has ended.
func (h *H2) Gone() <-chan struct{} { return h.gone }

// StopReading leaves what comes from now on to the kernel. Call it once.
func (h *H2) StopReading() { close(h.paused) }

// Close leaves by a reset.
func (h *H2) Close() {
	h.mu.Lock()
	select {
	case <-h.closed:
	default:
		close(h.closed)
	}
	h.mu.Unlock()
	h.Net.Close()
}

var _ net.Conn = (*MeterConn)(nil)
