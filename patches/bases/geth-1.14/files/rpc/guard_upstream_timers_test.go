// SPDX-License-Identifier: LGPL-3.0-or-later

// testing/synctest refuses the timers that a go.mod of Go 1.22 asks for; with these
// ones Go's own, since 1.23, are tested.
//
//go:debug asynctimerchan=0
package rpc
