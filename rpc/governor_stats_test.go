// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGovernorMetricNames(t *testing.T) {
	for _, class := range []GovernorClass{Foreground, Background} {
		require.Empty(t, strings.Trim(class.String(), "abcdefghijklmnopqrstuvwxyz"))
	}
}
