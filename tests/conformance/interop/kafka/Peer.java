import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/**
 * Answers questions about Kafka's classes over stdin and stdout, until stdin ends.
 *
 * A question is one frame: int32 size, then the command as a byte string, int32 number of items, and each item: int32
 * number of fields, each field a byte string. An answer is one frame: int32 size, int32 number of results (one an item,
 * in order), and each result: one byte (0 ok, 1 error), int32 number of fields, each field a byte string. A byte string
 * is int32 length and that many bytes. The one field of an error is its text; an error affects only its own item.
 */
public final class Peer {
    /** The action of a command on the fields of an item. */
    interface Command {
        List<byte[]> run(List<byte[]> fields) throws Throwable;
    }

    private static final Map<String, Command> COMMANDS = Map.of(
        "MESSAGES", Messages::list,
        "SETTINGS", Settings::ask,
        "DEFAULT", Messages::makeDefault,
        "ROUNDTRIP", Messages::roundtrip,
        "BATCH_READ", Batches::read,
        "BATCH_WRITE", Batches::write,
        "MARKER_WRITE", Batches::writeMarker,
        "COMPRESS", Codecs::compress,
        "DECOMPRESS", Codecs::decompress,
        "DUMP", Dumps::dump
    );

    public static void main(String[] arguments) throws IOException {
        DataInputStream questions = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        DataOutputStream answers =
            new DataOutputStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16));
        // Output of libraries must not appear between two answers.
        System.setOut(System.err);
        while (true) {
            byte[] question;
            try {
                // Read the whole question before answering, so that neither side can block the other.
                question = questions.readNBytes(questions.readInt());
            } catch (EOFException end) {
                return;
            }
            byte[] answer = answer(ByteBuffer.wrap(question));
            answers.writeInt(answer.length);
            answers.write(answer);
            answers.flush();
        }
    }

    private static byte[] answer(ByteBuffer question) throws IOException {
        String name = text(readBytes(question));
        Command command = COMMANDS.getOrDefault(name, fields -> {
            throw new IllegalArgumentException("no such command: " + name);
        });
        int count = question.getInt();
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(1 << 16);
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeInt(count);
        for (int item = 0; item < count; item++) {
            byte[][] fields = new byte[question.getInt()][];
            for (int field = 0; field < fields.length; field++) {
                fields[field] = readBytes(question);
            }
            try {
                writeResult(out, 0, command.run(List.of(fields)));
            } catch (Throwable error) { // even running out of memory or stack is only this item's answer
                writeResult(out, 1, List.of(describe(error)));
            }
        }
        return bytes.toByteArray();
    }

    private static byte[] readBytes(ByteBuffer from) {
        byte[] bytes = new byte[from.getInt()];
        from.get(bytes);
        return bytes;
    }

    private static void writeResult(DataOutputStream out, int status, List<byte[]> fields) throws IOException {
        out.writeByte(status);
        out.writeInt(fields.size());
        for (byte[] field : fields) {
            out.writeInt(field.length);
            out.write(field);
        }
    }

    /** Returns the error with its stack trace and causes: a BufferUnderflowException is meaningless without its place. */
    private static byte[] describe(Throwable error) {
        StringBuilder text = new StringBuilder();
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            text.append(text.length() == 0 ? "" : "\ncaused by ").append(cause);
            Arrays.stream(cause.getStackTrace()).limit(6).forEach(frame -> text.append("\n  at ").append(frame));
        }
        return bytes(text.toString());
    }

    static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }
}
