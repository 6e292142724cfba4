package tidegate;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * The local disk for Spark's checkpoints: Hadoop's RawLocalFs, but for processes.
 *
 * Without its native library Hadoop runs `chmod` for each new file and `readlink` four times for each
 * rename: five processes for each file of a checkpoint. Java does both by itself.
 */
public class LocalFiles extends DelegateToFileSystem {

    public LocalFiles(URI uri, Configuration conf) throws IOException, URISyntaxException {
        super(uri, new Disk(), conf, "file", false);
    }

    public boolean isValidName(String path) {
        return true; // as in RawLocalFs: the disk says what it takes
    }

    public static class Disk extends RawLocalFileSystem {

        public void setPermission(Path path, FsPermission permission) throws IOException {
            if (permission.getStickyBit()) {
                super.setPermission(path, permission); // which Java has no name for
                return;
            }
            String symbols = permission.getUserAction().SYMBOL
                + permission.getGroupAction().SYMBOL
                + permission.getOtherAction().SYMBOL;
            Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(symbols));
        }

        public FileStatus getFileLinkStatus(Path path) throws IOException {
            if (Files.isSymbolicLink(pathToFile(path).toPath())) {
                return super.getFileLinkStatus(path);
            }
            return getFileStatus(path);
        }
    }
}
