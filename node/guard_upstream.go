// SPDX-License-Identifier: LGPL-3.0-or-later

package node

// What upstream's releases spell differently, in one place: a base for older
// ones has its own variant of this file.

// guardBodyLimit is the largest HTTP request body that the node's servers read,
// in bytes; 0 is the default of package rpc.
func (c *Config) guardBodyLimit() int { return c.HTTPBodyLimit }
