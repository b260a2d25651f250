package nip34

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync/filters"
)

// lists makes an announcement of "x" by key(owner) that lists the others.
func lists(owner int, maintainers ...int) *Announcement {
	a := &Announcement{Ref: filters.RepoRef{Owner: key(owner), Identifier: "x"}, CreatedAt: 100, ID: eventID(owner)}
	for _, m := range maintainers {
		a.Maintainers = append(a.Maintainers, key(m))
	}
	return a
}

func setOf(members ...int) map[filters.PubKey]struct{} {
	set := make(map[filters.PubKey]struct{})
	for _, m := range members {
		set[key(m)] = struct{}{}
	}
	return set
}

func TestMaintainerSet(t *testing.T) {
	other := lists(1, 9)
	other.Ref.Identifier = "y"
	older := lists(1, 8)
	older.CreatedAt = 99
	higher := lists(1, 8)
	higher.ID = eventID(1000)
	for name, c := range map[string]struct {
		same []*Announcement
		want map[filters.PubKey]struct{}
	}{
		"no announcement":          {nil, setOf(1)},
		"alone":                    {[]*Announcement{lists(1)}, setOf(1)},
		"itself":                   {[]*Announcement{lists(1, 1)}, setOf(1)},
		"one-sided, by the owner":  {[]*Announcement{lists(1, 2), lists(2)}, setOf(1, 2)},
		"one-sided, by a stranger": {[]*Announcement{lists(1), lists(2, 1)}, setOf(1)},
		"recursion":                {[]*Announcement{lists(3, 4), lists(2, 3), lists(1, 2)}, setOf(1, 2, 3, 4)},
		"cycle":                    {[]*Announcement{lists(1, 2), lists(2, 3), lists(3, 1, 2)}, setOf(1, 2, 3)},
		"broken chain":             {[]*Announcement{lists(1, 2), lists(3, 4)}, setOf(1, 2)},
		"another identifier":       {[]*Announcement{other, lists(1, 2)}, setOf(1, 2)},
		"an older version":         {[]*Announcement{lists(1, 2), older}, setOf(1, 2)},
		"the same second":          {[]*Announcement{higher, lists(1, 2)}, setOf(1, 2)},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, MaintainerSet(lists(1).Ref, c.same))
		})
	}
}

// A chain of 1,000 and a crowd of 1,000 are cut at the same size, and the owner's
// own listing is served first.
func TestMaintainerSetIsBounded(t *testing.T) {
	var chain []*Announcement
	crowd := lists(0, 2000)
	for i := range 1000 {
		chain = append(chain, lists(i, i+1))
		crowd.Maintainers = append(crowd.Maintainers, key(i+1))
	}
	set := MaintainerSet(chain[0].Ref, chain)
	assert.Len(t, set, MaxMaintainers+1)
	assert.Contains(t, set, key(MaxMaintainers))
	set = MaintainerSet(crowd.Ref, []*Announcement{crowd})
	assert.Len(t, set, MaxMaintainers+1)
	assert.Contains(t, set, key(2000))
}

// A listing counts if the one who is listed lists whoever lists them.
func TestReciprocalSet(t *testing.T) {
	older := lists(2, 1)
	older.CreatedAt = 99
	other := lists(2, 1)
	other.Ref.Identifier = "y"
	for name, c := range map[string]struct {
		same []*Announcement
		want map[filters.PubKey]struct{}
	}{
		"no announcement":          {nil, setOf(1)},
		"one-sided, no answer":     {[]*Announcement{lists(1, 2)}, setOf(1)},
		"one-sided, by the owner":  {[]*Announcement{lists(1, 2), lists(2)}, setOf(1)},
		"one-sided, by a stranger": {[]*Announcement{lists(1), lists(2, 1)}, setOf(1)},
		"returned":                 {[]*Announcement{lists(1, 2), lists(2, 1)}, setOf(1, 2)},
		"returned before":          {[]*Announcement{lists(1, 2), lists(2), older}, setOf(1)},
		"another identifier":       {[]*Announcement{lists(1, 2), other}, setOf(1)},
		"recursion":                {[]*Announcement{lists(1, 2), lists(2, 1, 3), lists(3, 2)}, setOf(1, 2, 3)},
		"returned to another":      {[]*Announcement{lists(1, 2, 3), lists(2, 1), lists(3, 2)}, setOf(1, 2)},
		"by another way":           {[]*Announcement{lists(1, 2, 3), lists(2, 1, 3), lists(3, 2)}, setOf(1, 2, 3)},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, Membership{Reciprocal: true}.Set(lists(1).Ref, c.same))
		})
	}
}

// naiveSet adds whatever somebody in the set lists until nothing changes.
func naiveSet(owner filters.PubKey, same []*Announcement, reciprocal bool) map[filters.PubKey]struct{} {
	returned := func(of, by filters.PubKey) bool {
		for _, a := range same {
			if a.Ref.Owner == by && slices.Contains(a.Maintainers, of) {
				return true
			}
		}
		return false
	}
	set := map[filters.PubKey]struct{}{owner: {}}
	for before := -1; before != len(set); {
		before = len(set)
		for _, a := range same {
			if _, ok := set[a.Ref.Owner]; ok {
				for _, m := range a.Maintainers {
					if !reciprocal || returned(a.Ref.Owner, m) {
						set[m] = struct{}{}
					}
				}
			}
		}
	}
	return set
}

func TestMaintainerSetAgainstNaiveTwin(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		n := 1 + rnd.IntN(12)
		var same []*Announcement
		for _, owner := range rnd.Perm(n)[:rnd.IntN(n+1)] {
			a := lists(owner)
			for range rnd.IntN(4) {
				a.Maintainers = append(a.Maintainers, key(rnd.IntN(n)))
			}
			same = append(same, a)
		}
		for _, reciprocal := range []bool{false, true} {
			m := Membership{Reciprocal: reciprocal}
			for owner := range n {
				ref := lists(owner).Ref
				assert.Equal(t, naiveSet(ref.Owner, same, reciprocal), m.Set(ref, same))
			}
			for author := range n {
				inSome := false
				for _, a := range same {
					_, in := naiveSet(a.Ref.Owner, same, reciprocal)[key(author)]
					inSome = inSome || in
				}
				assert.Equal(t, inSome, m.Includes(key(author), same))
			}
		}
	}
}
