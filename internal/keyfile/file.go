package keyfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// MaxBytes limits how much is read: a wrong path must not exhaust the memory.
const MaxBytes = 1 << 20

// Read reads a file of certificates, keys or tokens, of at most 1 MiB. It skips the
// byte-order mark with which some editors begin a text. Its errors name the remedy.
func Read(path string) ([]byte, error) {
	if path == "" {
		return nil, errors.New("no path given; certificate, key and authorities are needed together")
	}
	stat, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: write it, or correct the path", err)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w: make it readable for the user of this process", err)
	case err != nil:
		return nil, err
	case stat.Size() > MaxBytes:
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read: is it the right file?", path, stat.Size(), MaxBytes)
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("%w: make it readable for the user of this process", err)
	}
	if isUTF16(data) {
		return nil, fmt.Errorf("%s is a text in UTF-16: save it in UTF-8 or ASCII", path)
	}
	return skipByteOrderMark(data), err
}

// CheckAccess checks who else can access a file that holds a key or a token. Writable by
// others is an error, because they could replace it, and readable by every user of the machine
// is one, because they could use it. Readable by a group is only a warning: packages and
// fsGroup give a group of their own to a process.
//
// Where a container engine mounts the file, readable by all is only a warning: that is the
// engines' default, and only processes in the container reach the mount. The group is then one
// that the pod has for itself.
func CheckAccess(path string) (warning string, err error) {
	if runtime.GOOS == "windows" {
		return "", nil // mode bits have no meaning there
	}
	stat, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	switch mode := stat.Mode().Perm(); {
	case mode&0o022 != 0:
		return "", fmt.Errorf("%s can be written by others (mode %04o), who could replace it: chmod 600 %s", path, mode, path)
	case mode&0o044 == 0:
		return "", nil
	case mode&0o004 != 0 && !MountedByEngine(path):
		return "", fmt.Errorf("%s can be read by every user (mode %04o): chmod 600 %s; where Kubernetes mounts it, defaultMode: 0400 and an fsGroup", path, mode, path)
	case mode&0o004 != 0 || !MountedByEngine(path):
		return fmt.Sprintf("%s can be read by others (mode %04o): chmod 600, or defaultMode: 0400 and an fsGroup where Kubernetes mounts it", path, mode), nil
	}
	return "", nil
}

// MountedByEngine reports whether a container engine has mounted the file and set its mode:
// Kubernetes, whose volumes consist of links to ..data, or Docker or Podman, below /run/secrets.
func MountedByEngine(path string) bool {
	target, err := os.Readlink(path)
	return err == nil && strings.HasPrefix(target, "..data/") || strings.HasPrefix(filepath.Clean(path), "/run/secrets/")
}
