package wstransport_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// khatru.NewRelay starts a goroutine that never ends.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/fiatjaf/khatru.(*expirationManager).start"))
}
