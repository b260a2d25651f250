package purgatoryadapter_test

import "testing"

// The example is a test and runs.
func TestExampleOffline(t *testing.T) { testNothingBeforeItsData(t) }
