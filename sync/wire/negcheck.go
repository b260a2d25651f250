package wire

import (
	"encoding/hex"
	"fmt"

	"github.com/graspsync/graspsync/sync/internal/negentropy"
)

// CheckNegMessage reports what is wrong with the message of a NEG-OPEN or a NEG-MSG, in hex
// (NIP-77), for relays whose decoder is not to be trusted with it: some panic, or allocate what a
// message claims.
func CheckNegMessage(text string) error {
	msg, err := hex.DecodeString(text)
	if err != nil {
		return fmt.Errorf("negentropy message: %w", err)
	}
	if err := negentropy.Check(msg); err != nil {
		return fmt.Errorf("negentropy message: %w", err)
	}
	return nil
}
