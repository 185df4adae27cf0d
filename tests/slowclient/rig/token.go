// SPDX-License-Identifier: LGPL-3.0-or-later

package rig

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"time"
)

// Token signs what the engine API asks for, good for a minute.
func (n *Node) Token() string {
	enc := base64.RawURLEncoding
	msg := enc.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." +
		enc.EncodeToString(fmt.Appendf(nil, `{"iat":%d}`, time.Now().Unix()))
	mac := hmac.New(sha256.New, n.Secret)
	mac.Write([]byte(msg))
	return msg + "." + enc.EncodeToString(mac.Sum(nil))
}
