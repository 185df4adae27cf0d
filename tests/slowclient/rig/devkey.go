// SPDX-License-Identifier: LGPL-3.0-or-later

package rig

import (
	"crypto/ecdsa"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ethereum/go-ethereum/crypto"
)

// importKey puts the developer's key where --dev looks for one: it takes the first account
// there is and opens it without a password.
func importKey(b *Binary, dir string, key *ecdsa.PrivateKey) error {
	file, password := filepath.Join(dir, "key"), filepath.Join(dir, "password")
	if err := crypto.SaveECDSA(file, key); err != nil {
		return err
	}
	if err := os.WriteFile(password, nil, 0o600); err != nil {
		return err
	}
	out, err := output(b.Path, "account", "import", "--datadir="+filepath.Join(dir, "data"), "--lightkdf", "--password="+password, file)
	if err != nil {
		return fmt.Errorf("%s account import: %w\n%s", b.Path, err, out)
	}
	return nil
}
