//go:build unix

package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

// A release is where the binaries of one version are.
type release struct{ dir, version string }

// skewRelease names the tag that the test compares with, such as v0.1.0. Default: the newest
// one before this commit.
const skewRelease = "SKEW_RELEASE"

// releaseTag is the form of tags of releases; a candidate such as v0.2.0-rc.1 is none.
var releaseTag = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)

// earlierTag returns the newest tag of a release before the commit that is checked out in
// root, and why there is none.
func earlierTag(root string) (tag, reason string) {
	if tag = os.Getenv(skewRelease); tag != "" {
		return tag, ""
	}
	inside, err := git(root, "rev-parse", "--is-shallow-repository")
	if err != nil {
		return "", "there is no git repository: " + err.Error()
	}
	tags, err := git(root, "tag", "--merged", "HEAD", "--no-contains", "HEAD", "--sort=-version:refname")
	if err != nil {
		return "", err.Error()
	}
	for tag := range strings.FieldsSeq(tags) {
		if releaseTag.MatchString(tag) {
			return tag, ""
		}
	}
	if strings.TrimSpace(inside) == "true" {
		return "", "the clone is shallow and has no tag of a release: fetch them with `git fetch --tags --unshallow`"
	}
	return "", "no release is before this commit"
}

func git(root string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w: %s", cmd, err, stderr.Bytes())
	}
	return string(out), nil
}

// releases builds the earlier release and this commit.
func releases(t *testing.T) (before, now release) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	source := root
	tag, reason := earlierTag(root)
	if tag == "" {
		t.Logf("NO EARLIER RELEASE IS TESTED: %s. Two builds of this commit take its place, which tests only this test", reason)
		tag = "v0.0.1"
	} else {
		source = t.TempDir()
		archive := filepath.Join(t.TempDir(), "source.tar")
		if _, err := git(root, "archive", "--format=tar", "--output="+archive, tag); err != nil {
			t.Fatalf("source of %s: %v: fetch the tag, or unset %s", tag, err, skewRelease)
		}
		if out, err := exec.Command("tar", "-xf", archive, "-C", source).CombinedOutput(); err != nil {
			t.Fatalf("unpack %s: %v: %s", tag, err, out)
		}
		t.Logf("the earlier release is %s", tag)
	}
	before = buildRelease(t, source, strings.TrimPrefix(tag, "v"))
	return before, buildRelease(t, root, "999.0.0")
}

// buildRelease builds without the race detector, which would take most of the time of the test. The
// linker ignores the version of a package that is not there: internal/process was internal/node.
func buildRelease(t *testing.T, source, version string) release {
	t.Helper()
	r := release{t.TempDir(), version}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X github.com/ringway/ringway/internal/process.version="+version+" -X github.com/ringway/ringway/internal/node.version="+version,
		"-o", r.dir+string(filepath.Separator), "./cmd/relay", "./cmd/worker")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", version, err, out)
	}
	return r
}

// skewServices has enough services that a relay of each release forwards one of them to the
// other release.
var skewServices = []string{echo, "s1", "s2", "s3", "s4", "s5", "s6", "s7"}

// TestAFleetOfTwoReleasesLosesNoRequest upgrades a fleet member by member under load, and
// reverts the upgrade. In the middle of both, relays of both releases send requests to workers
// of both, and forward requests to each other.
func TestAFleetOfTwoReleasesLosesNoRequest(t *testing.T) {
	t.Parallel()
	before, now := releases(t)
	var skips []string // two of three relays serve each service
	for i, service := range skewServices {
		skips = append(skips, "--skip-relay", fmt.Sprintf("%s=r%d", service, i%3+1))
	}
	f := startFleet(t, fleetConfig{Relays: 3, Workers: 3, Secure: true, Binaries: before.dir,
		RelayArgs: skips, Services: func(int) []string { return skewServices }})
	for _, service := range skewServices {
		f.awaitAffine(t, service)
	}
	l := f.startLoad(t, loadConfig{Name: "skew", Service: echo, Pause: 100 * time.Millisecond, Retry: true,
		Relay: func(n int) *relay { return f.relays[n%len(f.relays)] }})

	change := func(to release, order []int) {
		for step, n := range order {
			r, w := f.relays[n], f.workers[n]
			l.more(t, 20)
			r.Process = restartAs(t, r.Process, to)
			procs.Await(t, r.ID+" is ready again", func() bool { _, status := f.ready(r.Admin); return status == 200 })
			l.more(t, 20)
			w.Process = restartAs(t, w.Process, to)
			procs.Await(t, fmt.Sprintf("%s is offered again, by %s", w.ID, to.version), func() bool { return f.sees(w.ID, true) && f.version(w.ID) == to.version })
			if step == 0 {
				f.mixes(t, before, now)
			}
		}
		for _, id := range []string{"r1", "r2", "r3", "w1", "w2", "w3"} {
			procs.Await(t, id+" is of "+to.version, func() bool { return f.version(id) == to.version })
		}
	}
	change(now, []int{0, 1, 2})
	change(before, []int{2, 1, 0})

	l.more(t, 20)
	results := l.stop()
	noneFailed(t, results)
	f.judge(t, results)
}

// restartAs is restart with the binaries of another release.
func restartAs(t *testing.T, old *process, to release) *process {
	t.Helper()
	old.Config.Dir = to.dir
	return restart(t, old)
}

// version is what the members gossip about one, empty while a relay that runs does not see it.
func (f *fleet) version(id string) (version string) {
	for _, r := range f.running() {
		var got struct {
			Members []struct{ ID, Version string }
		}
		f.api(r.Admin, "/api/v1/members", &got)
		i := slices.IndexFunc(got.Members, func(m struct{ ID, Version string }) bool { return m.ID == id })
		if i < 0 || version != "" && version != got.Members[i].Version {
			return ""
		}
		version = got.Members[i].Version
	}
	return version
}

// awaitAffine waits until two relays serve a service with all workers, and the third one
// forwards to them.
func (f *fleet) awaitAffine(t *testing.T, service string) {
	t.Helper()
	procs.Await(t, "two relays serve "+service, func() bool {
		affine := 0
		for _, r := range f.relays {
			var v serviceView
			if _, status := f.ready(r.Admin); status != 200 || f.api(r.Admin, "/api/v1/services/"+service, &v) != 200 || v.Endpoints != len(f.workers) {
				return false
			}
			if v.Role == "affine" {
				affine++
			} else if len(v.Peers) != 2 || !v.Peers[0].Connected || !v.Peers[1].Connected {
				return false
			}
		}
		return affine == 2
	})
}

// mixes sends requests through every pair of a relay and a worker, and through relays of each
// release that forward to one of the other.
func (f *fleet) mixes(t *testing.T, before, now release) {
	t.Helper()
	versions := map[string]string{}
	for _, id := range []string{"r1", "r2", "r3", "w1", "w2", "w3"} {
		versions[id] = f.version(id)
	}
	missing := map[string]bool{}
	for _, pair := range [][2]release{{before, now}, {now, before}} {
		for _, kind := range []string{"relay", "worker"} {
			missing["relay of "+pair[0].version+" to "+kind+" of "+pair[1].version] = true
		}
	}
	for _, service := range skewServices {
		f.awaitAffine(t, service)
	}
	sent := 0
	round := func() { // a worker that has just joined gets few requests at first
		for _, service := range skewServices {
			for _, r := range f.relays {
				sent++
				a := f.client.send(request{method: http.MethodPost, addr: r.Ingress, path: "/", service: service, id: fmt.Sprint("mixed-", sent), payload: strings.NewReader("x")})
				if a.status != http.StatusOK {
					t.Fatalf("%s of %s, versions %v: %v", service, r.ID, versions, a)
				}
				var v serviceView
				if f.api(r.Admin, "/api/v1/services/"+service, &v); v.Role == "affine" {
					delete(missing, "relay of "+versions[r.ID]+" to worker of "+versions[a.header.Get(endpointHeader)])
					continue
				}
				for _, p := range v.Peers {
					if p.Requests > 0 {
						delete(missing, "relay of "+versions[r.ID]+" to relay of "+versions[p.Node])
					}
				}
			}
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("versions %v; no request took the ways %v", versions, missing)
		}
	})
	procs.Await(t, "requests took every way between the releases", func() bool {
		round()
		return len(missing) == 0
	})
}
