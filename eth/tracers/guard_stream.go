// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"encoding/json"
	"io"
)

// StreamReply writes the result of one transaction of a block as json.Marshal would,
// without going through the trace again: it may be 100 MB, and encoding/json would
// read, check and copy all of it twice.
func (r *txTraceResult) StreamReply(w io.Writer) error {
	raw, ok := r.Result.(json.RawMessage)
	if !ok || len(raw) == 0 || r.Error != "" || !canonical(raw) {
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}
	for _, part := range [][]byte{[]byte(`{"txHash":"` + r.TxHash.Hex() + `","result":`), raw, []byte("}")} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// canonical reports whether encoding/json would leave raw as it is: it is valid,
// has no space between tokens and nothing that is escaped for HTML.
func canonical(raw []byte) bool {
	inString := false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '<' || c == '>' || c == '&':
			return false
		case c == 0xe2 && i+2 < len(raw) && raw[i+1] == 0x80 && raw[i+2]&^1 == 0xa8:
			return false // U+2028 and U+2029
		case inString && c == '\\':
			i++ // whatever follows ends nothing
		case c == '"':
			inString = !inString
		case !inString && (c == ' ' || c == '\n' || c == '\t' || c == '\r'):
			return false
		}
	}
	return json.Valid(raw)
}
