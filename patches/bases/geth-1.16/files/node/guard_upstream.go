// SPDX-License-Identifier: LGPL-3.0-or-later

package node

// guardBodyLimit is the largest HTTP request body that the node's servers read,
// in bytes; 0 is the default of package rpc. Up to v1.17.3 it is not configured.
func (c *Config) guardBodyLimit() int { return 0 }
