// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"container/list"
	"math/rand"
	"slices"
	"testing"
)

type listRecord struct {
	node listNode[*listRecord]
	id   int
}

// records returns what stands in l, having walked it both ways.
func (l *linkedList[T]) records(t *testing.T) (of []T) {
	t.Helper()
	n := 0
	for node := l.last; node != nil; node = node.prev {
		n++
	}
	for node := l.first; node != nil; node = node.next {
		if node.in != l {
			t.Fatal("a node does not know its list")
		}
		of = append(of, node.of)
	}
	if n != len(of) || n != l.n {
		t.Fatalf("%d nodes forwards, %d backwards, %d counted", len(of), n, l.n)
	}
	return of
}

// TestListModel moves records between two lists at random, beside two slices.
func TestListModel(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	var (
		lists [2]linkedList[*listRecord]
		model [2][]*listRecord
		all   []*listRecord
	)
	for i := range 8 {
		r := &listRecord{id: i}
		r.node.of = r
		all = append(all, r)
	}
	for step := range 5000 {
		r, i := all[rnd.Intn(len(all))], rnd.Intn(2)
		for j := range lists {
			if r.node.in == &lists[j] {
				lists[j].remove(&r.node)
				model[j] = slices.DeleteFunc(model[j], func(o *listRecord) bool { return o == r })
			}
		}
		switch rnd.Intn(3) {
		case 0:
			lists[i].pushBack(&r.node)
			model[i] = append(model[i], r)
		case 1:
			lists[i].pushFront(&r.node)
			model[i] = slices.Insert(model[i], 0, r)
		}
		for j := range lists {
			if got := lists[j].records(t); !slices.Equal(got, model[j]) {
				t.Fatalf("step %d: %v, want %v", step, got, model[j])
			}
			var front, back *listRecord
			if m := model[j]; len(m) > 0 {
				front, back = m[0], m[len(m)-1]
			}
			if lists[j].front() != front || lists[j].back() != back {
				t.Fatalf("step %d: wrong ends", step)
			}
		}
	}
}

func TestListMisuse(t *testing.T) {
	var l, other linkedList[*listRecord]
	var in, out listRecord
	l.pushBack(&in.node)
	for name, misuse := range map[string]func(){
		"pushed twice":        func() { l.pushBack(&in.node) },
		"in front, twice":     func() { other.pushFront(&in.node) },
		"removed, not in":     func() { l.remove(&out.node) },
		"removed from other":  func() { other.remove(&in.node) },
		"removed a 2nd time":  func() { l.pushBack(&out.node); l.remove(&out.node); l.remove(&out.node) },
		"pushed to the other": func() { other.pushBack(&in.node) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			misuse()
		}()
	}
	if got := l.records(t); len(got) != 1 || other.n != 0 {
		t.Errorf("misuse changed a list: %v", got)
	}
}

// BenchmarkList takes the first of 64 records out and puts it behind, beside the
// list of the standard library, which allocates an element each time.
func BenchmarkList(b *testing.B) {
	b.Run("linked", func(b *testing.B) {
		var l linkedList[*listRecord]
		for range 64 {
			r := new(listRecord)
			r.node.of = r
			l.pushBack(&r.node)
		}
		b.ReportAllocs()
		for b.Loop() {
			n := l.first
			l.remove(n)
			l.pushBack(n)
		}
	})
	b.Run("container", func(b *testing.B) {
		l := list.New()
		for range 64 {
			l.PushBack(new(listRecord))
		}
		b.ReportAllocs()
		for b.Loop() {
			l.PushBack(l.Remove(l.Front()))
		}
	})
}
