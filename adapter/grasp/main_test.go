package grasp_test

import (
	"testing"

	"go.uber.org/goleak"
)

// khatru starts a goroutine for each relay and never stops it.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/fiatjaf/khatru.(*expirationManager).start"))
}
