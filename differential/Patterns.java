import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;

/**
 * What Java's own regular expressions make of the cases of differential/pattern_cases.py.
 *
 * Arguments: the file of cases (one JSON object a line). Prints one JSON object for each: "refused", or "groups" (how
 * many there are) and "texts", for each text whether it "matches" as a whole, what was "found" first (what stands before
 * it, then it and its groups, or null), and what it becomes when that is "replaced"; or "slow" where Java does not get
 * that far.
 */
public final class Patterns {
    private static final ObjectMapper JSON =
            JsonMapper.builder().enable(JsonWriteFeature.ESCAPE_NON_ASCII).build();
    private static final int MOST_READS = 2_000_000;

    /** A text that can be read so often only. */
    private static final class Limited implements CharSequence {
        private final String text;
        private int left = MOST_READS;

        private Limited(String text) {
            this.text = text;
        }

        @Override
        public int length() {
            return text.length();
        }

        @Override
        public char charAt(int index) {
            if (left-- == 0)
                throw new IllegalStateException("slow");
            return text.charAt(index);
        }

        @Override
        public CharSequence subSequence(int start, int end) {
            return text.substring(start, end);
        }

        @Override
        public String toString() {
            return text;
        }
    }

    public static void main(String[] args) throws Exception {
        StringBuilder answers = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(args[0])))
            answers.append(JSON.writeValueAsString(answer(JSON.readTree(line)))).append('\n');
        System.out.print(answers);
    }

    private static ObjectNode answer(JsonNode given) {
        ObjectNode answer = JSON.createObjectNode();
        Pattern pattern;
        try {
            pattern = Pattern.compile(given.get("pattern").asText());
        } catch (PatternSyntaxException error) {
            return answer.put("refused", error.getMessage());
        } catch (RuntimeException error) {
            return answer.put("refused", error.toString());
        }
        answer.put("groups", pattern.matcher("").groupCount());
        ArrayNode texts = answer.putArray("texts");
        for (JsonNode text : given.get("texts"))
            texts.add(of(pattern, text.asText(), given.get("replacement").asText()));
        return answer;
    }

    private static ObjectNode of(Pattern pattern, String text, String replacement) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            boolean matches = pattern.matcher(new Limited(text)).matches();
            Matcher matcher = pattern.matcher(new Limited(text));
            ArrayNode found = matcher.find() ? JSON.createArrayNode().add(text.substring(0, matcher.start())) : null;
            for (int group = 0; found != null && group <= matcher.groupCount(); group++)
                found.add(matcher.group(group));
            return answer.put("matches", matches).<ObjectNode>set("found", found)
                    .put("replaced", replaced(pattern, text, replacement));
        } catch (RuntimeException | StackOverflowError error) {
            // Too many reads, or a fault of Java's own.
            return answer.put("slow", true);
        }
    }

    private static String replaced(Pattern pattern, String text, String replacement) {
        try {
            return pattern.matcher(new Limited(text)).replaceFirst(replacement);
        } catch (IllegalArgumentException | IndexOutOfBoundsException error) {
            return null;
        }
    }
}
