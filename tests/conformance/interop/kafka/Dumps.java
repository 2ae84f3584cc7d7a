import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.DumpLogSegments;

/** Runs Kafka's DumpLogSegments, many times in one process. */
final class Dumps {
    private Dumps() {
    }

    /** The tool's arguments → its output and its complaints. Another exit code than 0 is an error. */
    static List<byte[]> dump(List<byte[]> fields) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream(1 << 16);
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        Exit.setExitProcedure((code, message) -> {
            throw new IllegalStateException("left with " + code + ": " + message + "\n" + complained);
        });
        try (PrintStream first = stream(printed); PrintStream second = stream(complained)) {
            System.setOut(first);
            System.setErr(second);
            DumpLogSegments.main(fields.stream().map(Peer::text).toArray(String[]::new));
        } finally {
            System.setOut(out);
            System.setErr(err);
            Exit.resetExitProcedure();
        }
        return List.of(printed.toByteArray(), complained.toByteArray());
    }

    private static PrintStream stream(ByteArrayOutputStream bytes) {
        return new PrintStream(bytes, false, StandardCharsets.UTF_8);
    }
}
