import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/** Runs Kafka's command-line tools one after another in one JVM: one command for each line, fields separated by tabs. */
public class Tools {
    private static class Ended extends RuntimeException {
        final int status;

        Ended(int status) {
            super(null, null, false, false);
            this.status = status;
        }
    }

    public static void main(String[] arguments) throws Exception {
        System.setErr(System.out);
        Exit.setExitProcedure((status, message) -> {
            throw new Ended(status);
        });
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split("\t");
            String[] rest = Arrays.copyOfRange(fields, 1, fields.length);
            int status = 0;
            try {
                Class.forName(fields[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
            } catch (InvocationTargetException error) {
                if (error.getCause() instanceof Ended ended) {
                    status = ended.status;
                } else {
                    System.out.println("thrown: " + error.getCause());
                    status = -1;
                }
            }
            System.out.println("\n=== " + status);
            System.out.flush();
        }
    }
}
