// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	got := parse("x", []byte("// what it is\n>> {\"id\":1}\n<< {\"result\":1}\n>> {\"id\":2}\n<< {\"result\":2}\n"))
	require.Len(t, got, 2)
	require.Equal(t, `{"id":2}`, string(got[1].request))
	require.Equal(t, `{"result":2}`, string(got[1].want))
	require.Empty(t, parse("x", []byte("<< stray\n")))
}
