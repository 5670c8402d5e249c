package check

import (
	"fmt"
	"slices"
	"strings"
)

// gossipKeys: everybody encrypts with the same key, and has the same ones.
func gossipKeys(f *Fleet) (found []Finding) {
	ours := f.Self.GossipKeys
	judge := func(id string, theirs []string) {
		switch {
		case len(ours) == 0 && len(theirs) == 0:
		case len(ours) == 0 || len(theirs) == 0 || ours[0] != theirs[0]:
			found = append(found, Finding{
				Status: Failed, Subject: id,
				Text:   fmt.Sprintf("%s encrypts gossip with the key %s, %s with %s", id, first(theirs), f.Self.Relay, first(ours)),
				Cause:  "a rotation is not finished, or one of the two has the wrong key file",
				Remedy: "finish the rotation: `relay keys use FINGERPRINT`, which waits until all have the key; `relay keys list` shows who has which",
				Page:   page("gossip-key-differs"), Passing: true,
			})
		case !sameKeys(ours, theirs):
			found = append(found, Finding{
				Status: Warning, Subject: id,
				Text:   fmt.Sprintf("%s has the gossip keys %s, %s has %s", id, strings.Join(theirs, " "), f.Self.Relay, strings.Join(ours, " ")),
				Cause:  "a rotation is under way or was not finished: the old key is not removed everywhere, or the new one not installed everywhere",
				Remedy: "`relay keys install FILE` for a key that some lack, `relay keys remove FINGERPRINT` for one that is not used any more",
				Page:   page("gossip-key-differs"), Passing: true,
			})
		}
	}
	for _, one := range f.all()[1:] {
		judge(one.Relay, one.GossipKeys)
	}
	for _, k := range f.Keys {
		if k.Err != "" {
			found = append(found, Finding{
				Status: Warning, Subject: k.ID, Passing: true,
				Text:   fmt.Sprintf("worker %s does not tell its gossip keys: %s", k.ID, k.Err),
				Cause:  "a stream to its gossip address cannot be opened, or breaks off",
				Remedy: fmt.Sprintf("let TCP through to the gossip address of %s; look at its log", k.ID),
				Page:   page("gossip-key-differs"),
			})
			continue
		}
		judge(k.ID, k.Fingerprints)
	}
	return found
}

func first(fingerprints []string) string {
	if len(fingerprints) == 0 {
		return "none"
	}
	return fingerprints[0]
}

func sameKeys(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func fineGossipKeys(f *Fleet) string {
	if len(f.Self.GossipKeys) == 0 {
		return "gossip is not encrypted, on no relay"
	}
	return fmt.Sprintf("%s have the same %s", plural(len(f.all())+len(f.Keys), "member", "members"), plural(len(f.Self.GossipKeys), "gossip key", "gossip keys"))
}

// sharedKey: all relays sign session cookies with one key.
func sharedKey(f *Fleet) (found []Finding) {
	if f.Self.SharedKey == "" {
		return nil
	}
	for _, one := range f.all()[1:] {
		if one.SharedKey != "" && one.SharedKey != f.Self.SharedKey {
			found = append(found, Finding{
				Status: Warning, Subject: one.Relay, Passing: true,
				Text:   fmt.Sprintf("%s signs session cookies with the key %s, %s with %s", one.Relay, one.SharedKey, f.Self.Relay, f.Self.SharedKey),
				Cause:  "each was given another key, or they made theirs while they did not see each other",
				Remedy: "set the same --shared-key-file on all relays, or restart one of the two: it takes the key of the others",
				Page:   page("shared-key-forked"),
			})
		}
	}
	return found
}

func fineSharedKey(f *Fleet) string {
	if f.Self.SharedKey == "" {
		return "the shared key is not compared: its fingerprint does not travel in clear text, or there is none yet"
	}
	return "all relays sign with the same shared key"
}
