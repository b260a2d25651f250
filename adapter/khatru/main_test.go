package khatruadapter

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// NewRelay starts it and nothing ends it
		goleak.IgnoreTopFunction("github.com/fiatjaf/khatru.(*expirationManager).start"))
}
