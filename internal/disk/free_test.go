package disk_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/disk"
)

func TestFree(t *testing.T) {
	dir := t.TempDir()
	free, err := disk.Free(dir)
	require.NoError(t, err)
	require.Positive(t, free)
	if _, err := disk.Free(filepath.Join(dir, "nowhere")); err == nil {
		t.Skip("not known on this system")
	}
}
