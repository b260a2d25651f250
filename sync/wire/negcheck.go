package wire

import (
	"encoding/hex"
	"fmt"

	"github.com/graspsync/graspsync/sync/internal/negentropy"
)

// CheckNegMessage returns an error if the message of a NEG-OPEN or NEG-MSG, in hex, is invalid
// (NIP-77). Use it in front of relays whose decoder panics or allocates the memory that a message
// claims.
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
