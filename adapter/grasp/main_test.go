package grasp_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// khatru starts a goroutine for each relay and never stops it.
func TestMain(m *testing.M) {
	if os.Getenv(envFiles) != "" {
		os.Exit(m.Run()) // it ends with hundreds of open connections
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/fiatjaf/khatru.(*expirationManager).start"))
}
