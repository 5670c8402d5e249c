package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// normalise gives all files below dir the same date, and modes that do not depend on the
// umask. nfpm copies both into packages.
func normalise(dir string, date time.Time) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return errors.Join(os.Chmod(path, mode(inside, d)), os.Chtimes(path, date, date))
	})
}

// mode gives directories, binaries and scripts the permissions of programs. Completions have the
// names of the binaries, in other directories.
func mode(inside string, d fs.DirEntry) fs.FileMode {
	if d.IsDir() || filepath.Ext(inside) == ".sh" || inside == installed("relay") || inside == installed("worker") {
		return 0o755
	}
	return 0o644
}

// archive writes the files of a stage, sorted, below the directory top.
func (r *release) archive(name, top, stage string) (err error) {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	compressed, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(compressed)
	err = filepath.WalkDir(stage, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(stage, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		header := &tar.Header{Name: filepath.ToSlash(filepath.Join(top, inside)), Mode: int64(mode(inside, d)), ModTime: r.date, Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Size: info.Size()}
		if d.IsDir() {
			header.Name, header.Typeflag, header.Size = header.Name+"/", tar.TypeDir, 0
		}
		if err := w.WriteHeader(header); err != nil || d.IsDir() {
			return err
		}
		content, err := os.Open(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(w, content)
		return errors.Join(err, content.Close())
	})
	return errors.Join(err, w.Close(), compressed.Close())
}
