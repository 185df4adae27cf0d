// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/ethereum/go-ethereum/rpc"
	"github.com/stretchr/testify/require"
)

// TestGuardMembersModel: what a group says of its members is what a plain map does, and
// a list once given out stays as it was.
func TestGuardMembersModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	notifiers := make([]*rpc.Notifier, 12)
	for i := range notifiers {
		notifiers[i] = new(rpc.Notifier)
	}
	for range 300 {
		var s feedMembers
		model := make(map[rpc.ID]*rpc.Notifier)
		var given []feedMember
		var then map[rpc.ID]*rpc.Notifier
		for range rnd.IntN(40) {
			i := rnd.IntN(1 + rnd.IntN(len(notifiers)))
			id := rpc.ID(rune('a' + i))
			if _, ok := model[id]; !ok && rnd.IntN(3) > 0 {
				s.add(feedMember{id, notifiers[i]})
				model[id] = notifiers[i]
			} else {
				require.Equal(t, ok, s.remove(id))
				delete(model, id)
			}
			require.Equal(t, len(model), s.len())
			if then != nil {
				require.Equal(t, then, asMap(given), "a list in use was changed")
			}
			if rnd.IntN(2) == 0 {
				given, then = s.all(), maps.Clone(model)
				require.Equal(t, model, asMap(given))
				require.Len(t, given, len(model))
			}
		}
	}
}

func asMap(list []feedMember) map[rpc.ID]*rpc.Notifier {
	m := make(map[rpc.ID]*rpc.Notifier)
	for _, member := range list {
		m[member.id] = member.notifier
	}
	return m
}
