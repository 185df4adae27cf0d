// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import "github.com/ethereum/go-ethereum/rpc"

// feedMember is a subscription in a group.
type feedMember struct {
	id       rpc.ID
	notifier *rpc.Notifier
}

// feedMembers is the set of a group's members. The only one of a group, which is what
// most have who ask for the logs of a contract of their own, costs no table: 24 bytes of
// list in place of 280. A group of thousands finds one that leaves without a search.
//
// The zero value is empty and ready for use.
type feedMembers struct {
	list []feedMember             // nil: has to be made anew of byID
	byID map[rpc.ID]*rpc.Notifier // nil: there was never more than one member
}

// add enters a member that is not in the set.
func (s *feedMembers) add(m feedMember) {
	if s.byID == nil && len(s.list) == 0 {
		s.list = []feedMember{m}
		return
	}
	if s.byID == nil {
		s.byID = make(map[rpc.ID]*rpc.Notifier)
		for _, first := range s.list {
			s.byID[first.id] = first.notifier
		}
	}
	s.byID[m.id] = m.notifier
	s.list = nil
}

// remove reports whether id was in the set, and takes it out.
func (s *feedMembers) remove(id rpc.ID) bool {
	if s.byID == nil {
		if len(s.list) == 0 || s.list[0].id != id {
			return false
		}
		s.list = nil
		return true
	}
	if _, ok := s.byID[id]; !ok {
		return false
	}
	delete(s.byID, id)
	s.list = nil
	return true
}

func (s *feedMembers) len() int {
	if s.byID == nil {
		return len(s.list)
	}
	return len(s.byID)
}

// all returns the members. What it returned is not changed later.
func (s *feedMembers) all() []feedMember {
	if s.list == nil && len(s.byID) > 0 {
		s.list = make([]feedMember, 0, len(s.byID))
		for id, n := range s.byID {
			s.list = append(s.list, feedMember{id, n})
		}
	}
	return s.list
}
