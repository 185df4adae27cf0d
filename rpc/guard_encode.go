// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"encoding"
	"encoding/json"
	"io"
	"reflect"
	"slices"
	"sync"
)

const (
	// replyChunk is the unit in which an encoded reply is held, charged and
	// written.
	replyChunk = 64 << 10

	// Elements of a list are encoded in groups that aim at replyChunk bytes. The
	// bound keeps a group of elements that turn out larger than those before
	// them from being large itself.
	maxGroup = 64

	// maxEncodeDepth is how deep containers are taken apart. The pool's contents
	// are the deepest: section, sender, nonce.
	maxEncodeDepth = 4
)

// replyEncoder writes values into a replyBuffer as json.Marshal would write
// them, byte for byte, but long lists a few elements at a time.
//
// Only two shapes are taken apart, since only they become large: slices of
// anything but bytes, and maps with string keys; a block is a map with a list of
// transactions in it, the pool's contents are maps of maps. Everything else, and
// whatever brings its own MarshalJSON or MarshalText, is left to encoding/json.
//
// A list is cut with reflect's Slice, so that elements keep what matters to
// encoding/json: their static type, and that they are addressable.
type replyEncoder struct {
	buf  *replyBuffer
	enc  *json.Encoder
	skip bool    // the next byte is a group's opening bracket
	one  [1]byte // for single bytes, so that they need no allocation
}

func newReplyEncoder(buf *replyBuffer) *replyEncoder {
	e := &replyEncoder{buf: buf}
	e.enc = json.NewEncoder(e)
	return e
}

// ReplyStreamer is implemented by results, and by elements of results, that can
// write their JSON text piece by piece. What StreamReply writes must equal what
// json.Marshal returns for the value; it must stop at the first error of w and
// return that, since it says that the reply does not fit.
type ReplyStreamer interface {
	StreamReply(w io.Writer) error
}

// worthStreaming reports whether v is a container that the encoder would take
// apart. Of small ones it says no: encoding/json is faster with them.
func worthStreaming(result any) bool {
	if result == nil {
		return false
	}
	return worthTakingApart(reflect.ValueOf(result), 0)
}

func worthTakingApart(v reflect.Value, depth int) bool {
	for v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if !v.IsValid() || depth == maxEncodeDepth {
		return false
	}
	switch shapeOf(v.Type()) {
	case shapeList, shapeMarshalers:
		return v.Len() >= 4
	case shapeStream, shapeStreams:
		return !v.IsNil()
	case shapeMap:
		if v.Type().Elem().Kind() != reflect.Interface && v.Len() >= 4 {
			return true
		}
		if m, ok := v.Interface().(map[string]any); ok {
			for _, e := range m {
				if ev := reflect.ValueOf(e); mayBeContainer(ev) && worthTakingApart(ev, depth+1) {
					return true
				}
			}
			return false
		}
		for it := v.MapRange(); it.Next(); {
			if e := it.Value(); mayBeContainer(e) && worthTakingApart(e, depth+1) {
				return true
			}
		}
	}
	return false
}

// mayBeContainer keeps the look at a map's values cheap.
func mayBeContainer(v reflect.Value) bool {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return v.Kind() == reflect.Slice || v.Kind() == reflect.Map
}

// encode appends v. The error is json's own, or that of the buffer.
func (e *replyEncoder) encode(result any) error {
	if result == nil {
		return e.opaque(nil)
	}
	if err := e.value(reflect.ValueOf(result), 0); err != nil {
		return err
	}
	if e.buf.max > 0 && e.buf.size > e.buf.max {
		return errReplyTooLarge
	}
	return nil
}

func (e *replyEncoder) value(v reflect.Value, depth int) error {
	for v.Kind() == reflect.Interface && !v.IsNil() {
		v = v.Elem()
	}
	if !worthTakingApart(v, depth) {
		return e.opaque(v.Interface())
	}
	switch shapeOf(v.Type()) {
	case shapeMap:
		return e.stringMap(v, depth)
	case shapeStream:
		return v.Interface().(ReplyStreamer).StreamReply(e.buf)
	case shapeStreams:
		return e.streams(v)
	case shapeMarshalers:
		return e.marshalers(v)
	default:
		return e.list(v)
	}
}

// list writes a slice group by group. A group is a slice itself, written by
// encoding/json and stripped of its brackets.
func (e *replyEncoder) list(v reflect.Value) error {
	sep, group := byte('['), 1
	for i := 0; i < v.Len(); {
		if err := e.byte(sep); err != nil {
			return err
		}
		n, before := min(group, v.Len()-i), e.buf.size
		e.skip = true
		if err := e.opaque(v.Slice(i, i+n).Interface()); err != nil {
			return err
		}
		e.buf.dropLast()
		i += n
		switch grew := e.buf.size - before; {
		case grew < replyChunk/2:
			group = min(2*group, maxGroup)
		case grew > 2*replyChunk:
			group = max(group/2, 1)
		}
		sep = ','
	}
	return e.byte(']')
}

// streams writes a slice of elements that write themselves.
func (e *replyEncoder) streams(v reflect.Value) error {
	sep := byte('[')
	for i := 0; i < v.Len(); i++ {
		if err := e.byte(sep); err != nil {
			return err
		}
		elem := v.Index(i)
		if k := elem.Kind(); (k == reflect.Pointer || k == reflect.Interface) && elem.IsNil() {
			if err := e.opaque(nil); err != nil {
				return err
			}
		} else if err := elem.Interface().(ReplyStreamer).StreamReply(e.buf); err != nil {
			return err
		}
		sep = ','
	}
	if v.Len() == 0 {
		if err := e.byte(sep); err != nil {
			return err
		}
	}
	return e.byte(']')
}

// marshalers writes a slice of elements with a MarshalJSON, logs above all. What that
// returns has been through encoding/json most often, which would check and copy it once
// more; it is written as it is if there is nothing that this could change.
func (e *replyEncoder) marshalers(v reflect.Value) error {
	sep := byte('[')
	for i := range v.Len() {
		if err := e.byte(sep); err != nil {
			return err
		}
		sep = ','
		elem := v.Index(i)
		if !elem.IsNil() {
			text, err := elem.Interface().(json.Marshaler).MarshalJSON()
			if err == nil && isPlainJSON(text) {
				if _, err := e.buf.Write(text); err != nil {
					return err
				}
				continue
			}
		}
		if err := e.opaque(elem.Interface()); err != nil { // with json's own error
			return err
		}
	}
	return e.byte(']')
}

// isPlainJSON reports whether encoding/json would leave a valid text as it is: it has
// no space between tokens, and nothing that is escaped for HTML.
func isPlainJSON(text []byte) bool {
	inString := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '"':
			inString = !inString
		case '\\':
			i++ // whatever follows ends nothing
		case ' ', '\t', '\r', '\n':
			if !inString {
				return false
			}
		case '<', '>', '&', 0xe2: // 0xe2 begins U+2028 and U+2029, and others
			return false
		}
	}
	return len(text) > 0 && !inString
}

// stringMap writes a map in the order of its keys.
func (e *replyEncoder) stringMap(v reflect.Value, depth int) error {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int {
		switch x, y := a.String(), b.String(); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	sep := byte('{')
	for _, k := range keys {
		if err := e.byte(sep); err != nil {
			return err
		}
		if err := e.opaque(k.String()); err != nil {
			return err
		}
		if err := e.byte(':'); err != nil {
			return err
		}
		if err := e.value(v.MapIndex(k), depth+1); err != nil {
			return err
		}
		sep = ','
	}
	return e.byte('}')
}

func (e *replyEncoder) byte(c byte) error {
	e.one[0] = c
	_, err := e.buf.Write(e.one[:])
	return err
}

// opaque leaves a value to encoding/json. Its Encoder is Marshal without the
// last copy and with a newline after the value.
func (e *replyEncoder) opaque(v any) error {
	if err := e.enc.Encode(v); err != nil {
		return err
	}
	e.buf.dropLast()
	return nil
}

// Write takes the output of encoding/json.
func (e *replyEncoder) Write(p []byte) (int, error) {
	total := len(p)
	if e.skip && total > 0 {
		e.skip, p = false, p[1:]
	}
	if _, err := e.buf.Write(p); err != nil {
		return 0, err
	}
	return total, nil
}

// shape says how a type is encoded.
type shape uint8

const (
	shapeOpaque     shape = iota
	shapeList             // slice, cut into groups
	shapeMap              // map with string keys
	shapeStream           // writes itself
	shapeStreams          // slice of values that write themselves
	shapeMarshalers       // slice of pointers with a MarshalJSON
)

var (
	shapes            sync.Map // reflect.Type -> shape
	jsonMarshalerType = reflect.TypeFor[json.Marshaler]()
	textMarshalerType = reflect.TypeFor[encoding.TextMarshaler]()
	replyStreamerType = reflect.TypeFor[ReplyStreamer]()
)

func shapeOf(t reflect.Type) shape {
	switch t.Kind() {
	case reflect.Slice, reflect.Map, reflect.Pointer:
	default:
		return shapeOpaque
	}
	if s, ok := shapes.Load(t); ok {
		return s.(shape)
	}
	s := shapeOpaque
	switch {
	case t.Implements(replyStreamerType):
		s = shapeStream
	case t.Kind() == reflect.Pointer:
	case t.Implements(jsonMarshalerType) || t.Implements(textMarshalerType):
	case reflect.PointerTo(t).Implements(jsonMarshalerType) || reflect.PointerTo(t).Implements(textMarshalerType):
		// Encoded differently where it is addressable; not worth telling apart.
	case t.Kind() == reflect.Slice && t.Elem().Implements(replyStreamerType):
		s = shapeStreams
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Pointer && t.Elem().Implements(jsonMarshalerType):
		s = shapeMarshalers
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		s = shapeList
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String && !t.Key().Implements(textMarshalerType):
		s = shapeMap
	}
	shapes.Store(t, s)
	return s
}
