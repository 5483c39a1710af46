package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/s3response"
)

// durable makes acknowledged uploads survive a loss of power. The bytes are
// synced while the file has no name, so that a name never appears with half an
// object; then, since the library stores checksum and ETag as attributes after
// that, the file once more, and the folders from it up to the root (it removes
// empty folders, so none of them can be taken for durable). Parts of an upload
// under way are not synced: they count for nothing before its completion,
// which copies them.
type durable struct {
	*posix.Posix
	root string
	sync func(*os.File) error
}

// PutObject implements the library's backend.
func (d *durable) PutObject(ctx context.Context, in s3response.PutObjectInput) (s3response.PutObjectOutput, error) {
	out, err := d.PutObjectWithPostFunc(ctx, in, d.sync)
	if err != nil {
		return out, err
	}
	return out, d.named(in.Bucket, in.Key)
}

// CompleteMultipartUpload implements the library's backend.
func (d *durable) CompleteMultipartUpload(ctx context.Context, in *s3.CompleteMultipartUploadInput) (s3response.CompleteMultipartUploadResult, string, error) {
	out, version, err := d.CompleteMultipartUploadWithCopy(ctx, in, d.copyPart)
	if err != nil {
		return out, version, err
	}
	return out, version, d.named(in.Bucket, in.Key)
}

// copyPart appends a part to the object and syncs it. On an error the library
// would copy the part once more, behind what is there already, and without a
// sync; closing the file makes it give up.
func (d *durable) copyPart(from, to *os.File) (bool, error) {
	_, err := io.Copy(to, from)
	if err == nil {
		err = d.sync(to)
	}
	if err != nil {
		err = errors.Join(err, to.Close())
	}
	return true, err // the parts are still there: the completion may be sent again
}

// named makes a name that has appeared durable.
func (d *durable) named(bucket, key *string) error {
	if bucket == nil || key == nil {
		return errors.New("an upload without bucket or key")
	}
	path := filepath.Join(d.root, *bucket, filepath.FromSlash(*key))
	for ; len(path) >= len(d.root); path = filepath.Dir(path) {
		// Deleted, or replaced, by somebody else meanwhile: nothing of ours to sync.
		if err := syncPath(path, d.sync); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("sync after upload: %w", err)
		}
	}
	return nil
}
