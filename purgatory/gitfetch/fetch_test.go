package gitfetch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
)

func ref(t testing.TB, name string) nip34.RefName {
	t.Helper()
	r, err := nip34.ParseRefName(name)
	require.NoError(t, err)
	return r
}
