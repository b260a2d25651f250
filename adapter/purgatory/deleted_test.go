package purgatoryadapter_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
)

// A repository leaves service within a minute after a Store without hooks has executed the deletion of
// its announcement.
func TestDeletionsOfAStoreWithoutHooks(t *testing.T) {
	for name, deletion := range map[string]func(ann *nostr.Event) *nostr.Event{
		"by address": func(ann *nostr.Event) *nostr.Event { return owner.Deletion(at(0), ann) },
		"by id": func(ann *nostr.Event) *nostr.Event {
			return owner.Event(at(0), graspsync.KindDeletion, "", nostr.Tag{"e", ann.ID})
		},
		"vanished": func(*nostr.Event) *nostr.Event {
			return owner.Event(at(0), graspsync.KindVanish, "", nostr.Tag{"relay", "ALL_RELAYS"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				defer func() { r.stop() }()
				events, url, has := r.hosted()
				r.git.Serve(url, fetchtest.Server{Objects: []nip34.ObjectID{has}})
				after(15 * time.Minute)
				require.Equal(t, len(events), r.all(events))
				require.True(t, r.git.Has(owner.Ref("repo")))
				_, err := r.policy.Store(r.store).Save(t.Context(), []graspsync.Incoming{{Event: eventtest.Of(deletion(events[0]))}})
				require.NoError(t, err)
				after(time.Minute)
				require.False(t, r.has(events[0]))
				require.False(t, r.git.Has(owner.Ref("repo")))
			})
		})
	}
}
