// SPDX-License-Identifier: LGPL-3.0-or-later

package flagset

import "flag"

// GuardFlag adds a flag that is read by its value's own Set. def is the default as
// the help text shows it. Visit hands out what String returns, so that has to be a
// text that Set takes.
func (f *Flagset) GuardFlag(name, usage, def string, value flag.Value) {
	f.addFlag(&FlagVar{Name: name, Usage: usage, Group: "JsonRPC", Default: def, Value: guardUpdate{value}})
	f.set.Var(value, name, usage)
}

// guardUpdate takes the text of a flag that was parsed by another flag set, so it
// is one that Set took before.
type guardUpdate struct{ flag.Value }

// UpdateValue implements Updatable.
func (u guardUpdate) UpdateValue(text string) { u.Set(text) }
