package purgatoryadapter_test

import "testing"

// What the example shows is a test, and runs.
func TestExampleOffline(t *testing.T) { testNothingBeforeItsData(t) }
