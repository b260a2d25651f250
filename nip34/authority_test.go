package nip34

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/goldentest"
)

// people are the names in scripts. The order of their keys is that of the names.
var people = []string{"ann", "bob", "cat", "dan", "eve", "fay", "gus", "hal"}

func keyOf(name string) (graspsync.PubKey, error) {
	i := slices.Index(people, name)
	if i < 0 {
		return graspsync.PubKey{}, fmt.Errorf("nobody is called %q", name)
	}
	return key(i), nil
}

// named replaces keys by names.
func named(text string) string {
	for i, name := range people {
		text = strings.ReplaceAll(text, key(i).String(), name)
	}
	return text
}

// authorityPlayer plays scripts that show which keys are members:
//
//	case a title             forgets all announcements
//	ann M=ann m=bob:10:20    the announcement of ann with these tags; at=200 and d=other are its
//	                         time and identifier, and names stand for keys
//	view bob                 which keys are members in the view of bob's announcement
//	onesided bob             the same if listings need no answer
//	somewhere bob            whether bob is a member in any view
//	wanted ann bob           whose announcements those of ann and bob make wanted
//	relays bob               at which relays bob's repository is followed
type authorityPlayer struct{ same []*Announcement }

func (p *authorityPlayer) play(words []string) ([]string, error) {
	switch words[0] {
	case "case":
		p.same = nil
		return nil, nil
	case "view", "onesided":
		owner, err := keyOf(words[1])
		a := p.family(words[0] == "onesided").Authority(graspsync.RepoRef{Owner: owner, Identifier: "x"})
		return strings.Split(strings.TrimSpace(named(textOf(a))), "\n"), err
	case "somewhere":
		who, err := keyOf(words[1])
		return []string{strconv.FormatBool(maintains(p.family(false), who, Owners(p.same)))}, err
	case "wanted":
		var owners []graspsync.PubKey
		for _, w := range words[1:] {
			owner, err := keyOf(w)
			if err != nil {
				return nil, err
			}
			owners = append(owners, owner)
		}
		var out []string
		wanted, _ := p.family(false).Wanted(owners, ServedBounds())
		for k := range wanted {
			out = append(out, named(k.String()))
		}
		slices.Sort(out)
		return []string{strings.Join(append([]string{"wanted:"}, out...), " ")}, nil
	case "relays":
		owner, err := keyOf(words[1])
		return []string{p.relays(owner)}, err
	}
	owner, err := keyOf(words[0])
	if err != nil {
		return nil, err
	}
	ev := event(graspsync.KindAnnouncement, owner)
	ev.ID = eventID(100 + len(p.same)).String()
	identifier := "x"
	for _, w := range words[1:] {
		tag := scriptTag(w)
		switch tag[0] {
		case "at":
			at, err := strconv.Atoi(tag[1])
			if err != nil {
				return nil, err
			}
			ev.CreatedAt = nostr.Timestamp(at)
		case "d":
			identifier = tag[1]
		case "relays":
			for i, name := range tag[1:] {
				tag[1+i] = "wss://" + name + ".example"
			}
			ev.Tags = append(ev.Tags, tag)
		default:
			ev.Tags = append(ev.Tags, tag)
		}
	}
	ev.Tags = append(ev.Tags, nostr.Tag{"d", identifier})
	a, err := ParseAnnouncement(eventtest.Of(ev))
	p.same = append(p.same, a)
	return nil, err
}

func (p *authorityPlayer) relays(owner graspsync.PubKey) string {
	usable := func(graspsync.RelayURL) bool { return true }
	targets, left := p.family(false).Targets(TargetBounds{MaxAuthors: MaxMaintainers, PerAuthor: MaxListed, MaxByOthers: 4, IsUsable: usable})(owner)
	out, by := "relays:", owner
	for _, s := range targets {
		if s.ListedBy != by || s.ListedBy != owner {
			out += ", of " + named(s.ListedBy.String()) + ":"
			by = s.ListedBy
		}
		out += " " + strings.TrimSuffix(strings.TrimPrefix(s.Relay.String(), "wss://"), ".example")
	}
	if left > 0 {
		out += fmt.Sprint(", and ", left, " left")
	}
	return out
}

func (p *authorityPlayer) family(oneSided bool) *AnnouncementSet {
	return Membership{OneSided: oneSided}.AnnouncementSet("x", p.same)
}

// scriptTag reads m=bob:10:20.
func scriptTag(word string) nostr.Tag {
	name, rest, ok := strings.Cut(word, "=")
	tag := nostr.Tag{name}
	if !ok {
		return tag
	}
	for value := range strings.SplitSeq(rest, ":") {
		if k, err := keyOf(value); err == nil {
			value = k.String()
		}
		tag = append(tag, value)
	}
	return tag
}

func TestAuthorityScripts(t *testing.T) {
	goldentest.Play(t, func(*testing.T) goldentest.Player { return new(authorityPlayer).play })
}

// The table of the documentation equals the output of the scripts.
func TestAuthorityTable(t *testing.T) {
	files, err := filepath.Glob("testdata/authority-?-*.txt")
	require.NoError(t, err)
	var out strings.Builder
	out.WriteString(tableHead)
	cases := 0
	for _, file := range files {
		script, err := os.ReadFile(file)
		require.NoError(t, err)
		cases += writeTable(&out, string(script))
	}
	assert.Greater(t, cases, 60)
	goldentest.Equal(t, "../docs/authority.md", out.String())
}

const tableHead = `# Who may push

A push may set a ref to a commit if the newest state event (kind 30618) of a *member* of the repository has that ref at that commit.
Fetched Git data follows the same rule. The owner is a member, unless the owner's announcement names another lead who does not list
the owner, or ends the owner's role. Other keys become members in two steps:

1. A member's announcement lists the key, by a role tag "m" (maintainer) or "M" (lead). The tag "maintainers" counts only if the
   announcement has no role tag.
2. The announcement of the listed key, with the same identifier, lists a member in return.

~~~
   ann's announcement          bob's announcement          cat's announcement
   m=bob  ───── lists ───────▶ m=ann
          ◀──── lists ──────── m=cat ───── lists ───────▶  (none)

   owner: member               member: he answered         invited: she has not answered
~~~

- **Bob** publishes a state that names his commit, and pushes to Ann's URL. The push is accepted.
- **Cat** cannot push, because she has no announcement, so a state of hers does not count. When she publishes an announcement that
  lists Bob or Ann, she becomes a member.
- **Dan** announces a repository of the same name and lists Ann. Nobody lists Dan, so he is not a member of Ann's repository. In
  his own repository he decides alone, unless Ann answers him.

More rules:

- The newest state of any member decides about all refs. Each ref of a push is judged separately. Refs below refs/nostr/ are
  different: anybody may push the commit that a pull request event names.
- A role tag may contain times: start, end, start, and so on. A role with an end is over.
- If an announcement names one other key as lead ("M"), the members are found from that lead instead of the owner. The announcement
  of the lead has to name itself as "M", or a further lead, which then has to do the same. Two leads, or leads that name each other,
  give no members.
- The role "o" (moderator) gives no right to push.
- With Membership.OneSided (-one-sided) step 2 is not needed, as on servers before 2026.

"/status.json?repo=..." and the page of a repository show its members.

## Cases

In an announcement "m=bob:10:20" is the tag ["m", <key of bob>, "10", "20"]. The column "asked" has one of these:

- view bob: the members that the URL of bob's repository has. "root" is the owner or lead with whom the set begins, "invited" a
  listed key that has not answered.
- onesided bob: the same with Membership.OneSided.
- somewhere bob: whether bob is a member of any repository with this identifier.
- wanted ann: if ann's announcement lists this server, the authors whose announcements are accepted although they do not.
- relays ann: the relays at which ann's repository is followed, and the announcement that names each.

Do not edit the tables. They are made from scripts in [nip34/testdata](../nip34/testdata), which has more cases.

<!-- Made by go test ./nip34 -run TestAuthorityTable -update. -->
`

func writeTable(out *strings.Builder, script string) (cases int) {
	var title, said, asked string
	var announced, answers []string
	flush := func() {
		if asked != "" {
			fmt.Fprintf(out, "| %s | %s | %s | %s |\n", title, strings.Join(announced, "<br>"), asked, strings.Join(answers, "<br>"))
			title, announced = "", nil
		}
		asked, answers = "", nil
	}
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "":
		case word == "#":
			said = strings.TrimSpace(said + " " + rest)
		case word == ">":
			answers = append(answers, rest)
		case word == "case":
			flush()
			if said != "" {
				fmt.Fprintf(out, "\n### %s\n\n| case | announcements | asked | answer |\n|---|---|---|---|\n", said)
				said = ""
			}
			title, announced = rest, nil
			cases++
		case word == "view" || word == "onesided" || word == "somewhere" || word == "wanted" || word == "relays":
			flush()
			asked = line
		default:
			flush()
			announced = append(announced, "`"+line+"`")
		}
	}
	flush()
	return cases
}

// naiveRoles are the tags of an announcement, read again by each method.
type naiveRoles struct{ tags nostr.Tags }

// named reports whether a role tag with one of the letters names a key, and whether such a tag is
// active.
func (n naiveRoles) named(letters string, who graspsync.PubKey) (named, active bool) {
	for _, tag := range n.tags {
		if len(tag) < 2 || len(tag[0]) != 1 || !strings.Contains(letters, tag[0]) || tag[1] != who.String() {
			continue
		}
		named = true
		ok := len(tag) == 2 || len(tag)%2 == 1
		for _, bound := range tag[2:] {
			_, err := strconv.ParseUint(bound, 10, 64)
			ok = ok && err == nil
		}
		active = active || ok
	}
	return named, active
}

func (n naiveRoles) any() bool {
	for _, tag := range n.tags {
		if len(tag) > 0 && (tag[0] == "M" || tag[0] == "m" || tag[0] == "o") {
			return true
		}
	}
	return false
}

func (n naiveRoles) lists(who graspsync.PubKey) bool {
	if n.any() {
		_, active := n.named("Mm", who)
		return active
	}
	for _, tag := range n.tags {
		if len(tag) > 0 && tag[0] == "maintainers" && slices.Contains(tag[1:], who.String()) {
			return true
		}
	}
	return false
}

func (n naiveRoles) hasSay(author graspsync.PubKey) bool {
	named, _ := n.named("Mmo", author)
	_, active := n.named("Mm", author)
	return !named || active
}

// naiveMembers adds members until nothing changes.
func naiveMembers(all map[graspsync.PubKey]naiveRoles, view graspsync.PubKey, oneSided bool, everybody []graspsync.PubKey) map[graspsync.PubKey]struct{} {
	root := view
	for step := 0; ; step++ {
		n, known := all[root]
		if !known || step > len(all) {
			return nil
		}
		var leads []graspsync.PubKey
		for _, k := range everybody {
			if _, active := n.named("M", k); active {
				leads = append(leads, k)
			}
		}
		if len(leads) == 0 && step == 0 && n.hasSay(root) || len(leads) == 1 && leads[0] == root {
			break
		}
		if len(leads) != 1 {
			return nil
		}
		root = leads[0]
	}
	set := map[graspsync.PubKey]struct{}{root: {}}
	for before := 0; before != len(set); {
		before = len(set)
		for _, who := range everybody {
			own, known := all[who]
			listed, answers := false, false
			for member := range set {
				if by, ok := all[member]; ok {
					listed = listed || by.lists(who)
				}
				answers = answers || known && own.lists(member)
			}
			if listed && (!known || own.hasSay(who)) && (oneSided || answers) {
				set[who] = struct{}{}
			}
		}
	}
	return set
}

// randomTags are tags of an announcement that names some of the first n keys.
func randomTags(rnd *rand.Rand, n int) nostr.Tags {
	tags := nostr.Tags{{"d", "x"}}
	who := func() string { return key(rnd.IntN(n)).String() }
	if rnd.IntN(3) > 0 {
		tag := nostr.Tag{"maintainers"}
		for range rnd.IntN(4) {
			tag = append(tag, who())
		}
		tags = append(tags, tag)
	}
	if rnd.IntN(2) > 0 {
		return tags
	}
	for range rnd.IntN(5) {
		tag := nostr.Tag{[]string{"m", "m", "m", "M", "o", "u"}[rnd.IntN(6)], who()}
		for range max(0, rnd.IntN(7)-3) {
			tag = append(tag, []string{"1", "2", "18446744073709551615", "defer", "x", "-1"}[rnd.IntN(6)])
		}
		tags = append(tags, tag)
	}
	if rnd.IntN(8) == 0 {
		tags = append(tags, nostr.Tag{"M"})
	}
	return tags
}

func TestAuthorityAgainstNaiveTwin(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	sizes := make(map[int]int)
	for range 3000 {
		n := 1 + rnd.IntN(7)
		everybody := make([]graspsync.PubKey, n)
		all := make(map[graspsync.PubKey]naiveRoles)
		var same []*Announcement
		for i := range n {
			everybody[i] = key(i)
			if rnd.IntN(6) == 0 {
				continue
			}
			tags := randomTags(rnd, n)
			all[key(i)] = naiveRoles{tags}
			same = append(same, announcement(t, key(i), tags...))
		}
		rnd.Shuffle(len(same), func(i, j int) { same[i], same[j] = same[j], same[i] })
		for _, oneSided := range []bool{false, true} {
			family := Membership{OneSided: oneSided}.AnnouncementSet("x", same)
			slices.Reverse(same)
			other := Membership{OneSided: oneSided}.AnnouncementSet("x", same)
			somewhere := make(map[graspsync.PubKey]struct{})
			for _, view := range everybody {
				ref := graspsync.RepoRef{Owner: view, Identifier: "x"}
				want, got := naiveMembers(all, view, oneSided, everybody), family.Authority(ref)
				require.Equal(t, want, got.Members(), "%v", all)
				require.Equal(t, got, other.Authority(ref), "whatever the order")
				maps.Copy(somewhere, want)
				sizes[len(want)]++
				checkReasons(t, family, got)
			}
			for _, who := range everybody {
				_, want := somewhere[who]
				require.Equal(t, want, maintains(family, who, Owners(same)), "%v", all)
			}
		}
	}
	for n := range 6 {
		assert.Greater(t, sizes[n], 20, "views with %d members", n)
	}
}

// textOf describes a view, one person per line.
func textOf(a *Authority) string {
	var out strings.Builder
	if a.LeadSearch != Found {
		fmt.Fprintf(&out, "no members: %s\n", a.LeadSearch)
	}
	for _, p := range a.People {
		fmt.Fprintf(&out, "%s: %s", p.Key, p.Kind)
		if p.ListedBy != (graspsync.PubKey{}) {
			fmt.Fprintf(&out, ", listed by %s", p.ListedBy)
		}
		if p.Lists != (graspsync.PubKey{}) {
			fmt.Fprintf(&out, ", lists %s", p.Lists)
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// checkReasons checks the reasons of all memberships.
func checkReasons(t *testing.T, f *AnnouncementSet, a *Authority) {
	t.Helper()
	require.Equal(t, a.LeadSearch == Found, len(a.Members()) > 0)
	wanted, _ := f.Wanted([]graspsync.PubKey{a.View.Owner}, ServedBounds())
	for i, p := range a.People {
		require.Equal(t, p.Kind == Root || p.Kind == Member, a.Has(p.Key))
		require.Equal(t, i == 0, p.Kind == Root)
		if i == 0 {
			continue
		}
		require.True(t, a.Has(p.ListedBy))
		require.Contains(t, f.Announcement(p.ListedBy).Maintainers, p.Key)
		if p.Key != a.View.Owner {
			require.Contains(t, wanted, p.Key, "members and invited keys are wanted")
		}
		if p.Kind == Member && !f.rule.OneSided {
			require.True(t, a.Has(p.Lists))
			require.Contains(t, f.Announcement(p.Key).Maintainers, p.Lists)
		}
	}
}

// lists makes an announcement of "x" by key(owner) that lists the others.
func lists(owner int, maintainers ...int) *Announcement {
	a := &Announcement{Ref: graspsync.RepoRef{Owner: key(owner), Identifier: "x"}, CreatedAt: 100, ID: eventID(owner)}
	for _, m := range maintainers {
		a.Maintainers = append(a.Maintainers, key(m))
	}
	return a
}

// A chain of 1,000 keys that list each other and a list of 1,000 keys are cut at the same size, the
// nearest keys first. A path of leads that is too long ends without a root.
func TestAuthorityIsBounded(t *testing.T) {
	var chain, crowd, leads []*Announcement
	first := lists(0)
	crowd = append(crowd, first)
	for i := range 1000 {
		chain = append(chain, lists(i, i+1, max(0, i-1)))
		first.Maintainers = append(first.Maintainers, key(i+1))
		crowd = append(crowd, lists(i+1, 0))
		a := lists(i, i+1)
		a.Leads = a.Maintainers
		leads = append(leads, a)
	}
	a := Membership{}.AnnouncementSet("x", chain).Authority(chain[0].Ref)
	assert.Len(t, a.Members(), MaxMaintainers+1)
	assert.True(t, a.Has(key(MaxMaintainers)))
	f := Membership{}.AnnouncementSet("x", crowd)
	a = f.Authority(first.Ref)
	assert.Len(t, a.Members(), MaxMaintainers+1)
	assert.True(t, a.Has(key(MaxMaintainers)))
	wanted, full := f.Wanted([]graspsync.PubKey{key(0)}, ServedBounds())
	assert.Len(t, wanted, MaxMaintainers)
	assert.True(t, full)
	f = Membership{}.AnnouncementSet("x", []*Announcement{first})
	assert.Len(t, f.Authority(first.Ref).People, MaxMaintainers+1)
	var silent []*Announcement // they have announcements and answer nobody, but for one
	for i, a := range crowd {
		silent = append(silent, lists(i))
		silent[i].Maintainers = a.Maintainers
		if i > 0 {
			silent[i].Maintainers = nil
		}
	}
	silent[900] = lists(900, 901)
	silent[901] = lists(901, 0)
	f = Membership{}.AnnouncementSet("x", silent)
	a = f.Authority(first.Ref)
	assert.Len(t, a.People, MaxMaintainers+3, "no member is left out")
	assert.Len(t, a.Members(), 3)
	assert.Equal(t, Person{Key: key(900), Kind: Member, ListedBy: key(0), Lists: key(901)}, a.People[2])
	for n, want := range map[int]int{MaxGenerations: MaxGenerations, MaxGenerations + 1: MaxGenerations} {
		wanted, full := Membership{}.AnnouncementSet("x", chain[:n]).Wanted([]graspsync.PubKey{key(0)}, ServedBounds())
		assert.Len(t, wanted, want, "nobody is wanted who is further off")
		assert.False(t, full)
	}
	a = Membership{}.AnnouncementSet("x", leads).Authority(leads[0].Ref)
	assert.Equal(t, Circular, a.LeadSearch)
	assert.Empty(t, a.Members())
}

func FuzzRoles(f *testing.F) {
	k, o := key(0).String(), key(1).String()
	f.Add("M\t" + k + "\nm\t" + o + "\t5\t6\no\t" + o)
	f.Add("m\t" + k + "\t5\tdefer\nmaintainers\t" + o)
	f.Add("M\nmaintainers\t" + o)
	f.Add("M\t" + o + "\nM\t" + k + "\t\nM\t" + k)
	f.Fuzz(func(t *testing.T, text string) {
		tags := append(nostr.Tags{{"d", "x"}}, fuzzTags(text)...)
		a, err := ParseAnnouncement(eventtest.Of(event(graspsync.KindAnnouncement, key(0), tags...)))
		if err != nil {
			return
		}
		naive := naiveRoles{tags}
		require.Equal(t, naive.any() && !naive.hasSay(key(0)), !a.ClaimsRole())
		require.LessOrEqual(t, len(a.Maintainers), MaxMaintainers)
		for i, m := range a.Maintainers {
			require.NotContains(t, a.Maintainers[:i], m)
			require.True(t, naive.lists(m))
		}
		for _, l := range a.Leads {
			require.Contains(t, a.Maintainers, l)
		}
		view := Membership{}.AnnouncementSet("x", []*Announcement{a}).Authority(a.Ref)
		require.Equal(t, naiveMembers(map[graspsync.PubKey]naiveRoles{key(0): naive}, key(0), false, []graspsync.PubKey{key(0), key(1)}) != nil && view.LeadSearch == Found, view.Has(key(0)))
	})
}

// If there is no room for all keys, the keys on the path to the root and the members are wanted
// first, and then the nearest keys.
func TestWantedPrefersMembers(t *testing.T) {
	crowd := func(by int, others ...int) *Announcement {
		a := lists(by, others...)
		for i := range 20 {
			a.Maintainers = append(a.Maintainers, key(1000+20*by+i))
		}
		return a
	}
	leads := func(a *Announcement, lead int) *Announcement {
		a.Leads = []graspsync.PubKey{key(lead)}
		return a
	}
	late := func(by int, lead int) *Announcement { // the lead is listed last
		return leads(func() *Announcement {
			a := crowd(by)
			a.Maintainers = append(a.Maintainers, key(lead))
			return a
		}(), lead)
	}
	for name, c := range map[string]struct {
		all  []*Announcement
		want []int
	}{
		"far off": {[]*Announcement{
			func() *Announcement {
				a := crowd(0)
				a.Maintainers = append(a.Maintainers, key(1))
				return a
			}(), crowd(1, 0, 2), lists(2, 1, 3), lists(3, 2),
		}, []int{1, 2, 3, 1000, 1001}},
		"leads, and who is led":  {[]*Announcement{late(0, 1), late(1, 2), leads(lists(2, 3), 2), lists(3, 2)}, []int{1, 2, 3, 1000, 1001}},
		"the missing lead":       {[]*Announcement{late(0, 1), late(1, 2)}, []int{1, 2, 1000, 1001, 1002}},
		"a lead beyond the list": {[]*Announcement{leads(crowd(0), 900)}, []int{1000, 1001, 1002, 1003, 1004}},
		"two leads": {[]*Announcement{func() *Announcement {
			a := crowd(0)
			a.Leads = []graspsync.PubKey{key(1), key(2)}
			return a
		}(), lists(1, 0)}, []int{1000, 1001, 1002, 1003, 1004}},
	} {
		f := Membership{}.AnnouncementSet("x", c.all)
		want := make(map[graspsync.PubKey]graspsync.PubKey)
		for _, who := range c.want {
			want[key(who)] = key(0)
		}
		got, full := f.Wanted([]graspsync.PubKey{key(0)}, WantedBounds{PerOwner: 5, Total: 100})
		assert.Equal(t, want, got, name)
		assert.True(t, full, name)
		got, full = f.Wanted([]graspsync.PubKey{key(0)}, WantedBounds{PerOwner: 100, Total: 5})
		assert.Equal(t, want, got, name)
		assert.True(t, full, name)
	}
}

func maintains(f *AnnouncementSet, author graspsync.PubKey, owners []graspsync.PubKey) bool {
	_, has := f.AllMembers(owners)[author]
	return has
}
