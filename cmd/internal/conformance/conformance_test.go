package conformance

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// withoutConsent are tests of grasp-audit 0.2.0 in which an author counts as maintainer who was
// only listed. ngit-grasp refuses that since 3.0.0, and so does graspserver.
var withoutConsent = []string{
	"accept_recursive_maintainer_announcement_without_service",
	"deletion_by_coordinate_removes_purgatory_state_event",
	"test_head_set_after_git_push_with_required_oids",
	"test_head_set_after_state_event_with_existing_commit",
	"test_push_authorized_by_maintainer_state_only",
	"test_push_authorized_by_recursive_maintainer_state",
}

// The compliance suite passes. By default the tests in withoutConsent fail.
func TestAudit(t *testing.T) {
	for name, c := range map[string]struct {
		flags []string
		fails []string
	}{
		"by default": {nil, withoutConsent},
		"one-sided":  {[]string{"-one-sided"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			tools := field(t)
			s := serve(t, ours, address(t), "", c.flags...)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			out, _ := exec.CommandContext(ctx, filepath.Join(tools, "grasp-audit"), "audit",
				"--relay", "ws://"+s.address, "--git-data-dir", filepath.Join(s.data, "git")).CombinedOutput()
			var fails []string
			for _, m := range regexp.MustCompile(`✗ (\w+)`).FindAllStringSubmatch(string(out), -1) {
				fails = append(fails, m[1])
			}
			slices.Sort(fails)
			require.Equal(t, c.fails, fails, "%s", out)
			passed := regexp.MustCompile(`(\d+)/62 tests passed`).FindStringSubmatch(string(out))
			require.NotNil(t, passed, "%s", out)
			t.Log(passed[0])
		})
	}
}

// Typical use of ngit and git by a person.
func TestFlow(t *testing.T) {
	field(t)
	s := serve(t, ours, address(t), "")
	p := newPeople(t, s.address)
	dir, url := p.publish("flow", s.address)
	require.Equal(t, p.head(dir), p.head(p.clone(url, contributor)))
	p.write(dir, "more", "more")
	p.do(dir, "git", "push", "origin", "main")
	p.do(dir, "git", "tag", "v1")
	p.do(dir, "git", "push", "origin", "v1")
	p.do(dir, "git", "checkout", "-qb", "feature")
	p.write(dir, "feature", "feature")
	p.do(dir, "git", "push", "origin", "feature")
	p.do(dir, "git", "push", "origin", "--delete", "feature")
	p.do(dir, "git", "checkout", "-q", "main")
	p.do(dir, "git", "reset", "-q", "--hard", "HEAD~1")
	p.write(dir, "instead", "instead")
	p.do(dir, "git", "push", "-f", "origin", "main")
	clone := p.clone(url, contributor)
	require.Equal(t, p.head(dir), p.head(clone))
	require.Equal(t, "v1", p.do(clone, "git", "tag"))
	require.NotContains(t, p.do(clone, "git", "branch", "-r"), "feature")
	p.propose(url)
	p.do(dir, "git", "fetch", "origin")
	require.Contains(t, p.do(dir, "ngit", "--nsec", owner, "pr", "list", "--json"), "Fix")
	require.Contains(t, p.do(dir, "ngit", "--nsec", owner, "issue", "list", "--json"), `"s"`)
}

// A repository is on two servers of either program. Changes made while one is down arrive there
// soon after its start.
func TestInterop(t *testing.T) {
	for _, pair := range [][2]string{{ours, ours}, {peer, ours}, {ours, peer}, {peer, peer}} {
		t.Run(pair[0]+" to "+pair[1], func(t *testing.T) {
			t.Parallel() // the test mostly waits
			field(t)
			a := serve(t, pair[0], address(t), "")
			late := address(t)
			p := newPeople(t, a.address)
			dir, url := p.publish("interop", a.address, late)
			p.propose(url)
			npub, _, _ := strings.Cut(strings.TrimPrefix(url, "nostr://"), "/")
			began := time.Now()
			b := serve(t, pair[1], late, a.address)
			at := "http://" + b.address + "/" + npub + "/interop.git"
			refs := func(pattern string) string {
				out, err := p.try(dir, "git", "ls-remote", at, pattern)
				if err != nil {
					return ""
				}
				return out
			}
			require.Eventually(t, func() bool { return strings.HasPrefix(refs("refs/heads/main"), p.head(dir)) }, 2*time.Minute, 250*time.Millisecond)
			t.Log("refs after", time.Since(began).Round(time.Millisecond))
			require.Eventually(t, func() bool { return refs("refs/nostr/*") != "" }, time.Minute, 250*time.Millisecond)
			t.Log("pull request after", time.Since(began).Round(time.Millisecond))
			require.Eventually(t, func() bool {
				want, got := a.events(t), b.events(t)
				return len(want) > 0 && len(want) == len(got)
			}, 2*time.Minute, time.Second)
			require.Equal(t, a.events(t), b.events(t))
		})
	}
}
