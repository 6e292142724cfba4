import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/** Runs the SQL statements of a file in this JVM, one after the other: `RunSql FILE`. */
public class RunSql {
    public static void main(String[] arguments) throws Exception {
        var tables = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
        for (String statement : Files.readString(Path.of(arguments[0])).split(";\\s*\n")) {
            if (statement.startsWith("SET ")) {
                String[] setting = statement.substring(4).replace("'", "").split(" = ");
                tables.getConfig().set(setting[0], setting[1]);
                continue;
            }
            var result = tables.executeSql(statement);
            if (statement.startsWith("INSERT")) result.await();
        }
    }
}
