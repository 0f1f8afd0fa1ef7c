#!/usr/bin/env bash
# Translate a cipher language into English, in the folder `work` next to this script, with a small translation model that has seen little
# and language models that have seen more English: in the decoder, and by rescoring n-best lists, there with further translation models too.
#
#   run.sh            does what has not been done yet (a step runs again when its command, or a step before it, has changed)
#   run.sh --fresh    starts over
#
# The commands are printed as they run; each can be repeated by hand in the folder `work`.
set -euo pipefail

here=$(CDPATH="" cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../../steps.sh"
begin work "python fairseq-preprocess fairseq-train fairseq-generate attlm sacrebleu" "$@"
# Two models are trained side by side, a core each.
export OMP_NUM_THREADS=1
plugin=${ATTLM_USER_DIR:-attlm_fairseq}

training="--optimizer adam --lr-scheduler polynomial_decay --cpu --distributed-world-size 1 --num-workers 0 --no-epoch-checkpoints --log-format simple"
echo "in $work:"
step corpus test.cipher "English from Python's manual and docstrings, some of it enciphered" \
    "python ../../../quickstart/corpus.py . && python ../prepare.py ."
step lm-data lm-data "fairseq's dictionary and data for the language model" \
    "fairseq-preprocess --only-source --trainpref train.txt --validpref dev.txt --nwordssrc 1504 --destdir lm-data"
translation="--task translation --arch transformer --share-decoder-input-output-embed \
--encoder-layers 2 --decoder-layers 1 --encoder-embed-dim 128 --decoder-embed-dim 128 --encoder-ffn-embed-dim 256 \
--decoder-ffn-embed-dim 256 --encoder-attention-heads 4 --decoder-attention-heads 4 --dropout 0 \
--criterion label_smoothed_cross_entropy --label-smoothing 0.1 --lr 0.003 --warmup-updates 60 --total-num-update 261 \
--clip-norm 1 --max-tokens 1000 --max-epoch 9 --validate-interval 9 --save-interval 9 $training"
step train mt "side by side: the translation model, a small Transformer; a small attentive LSTM language model and a 3-gram, of KenLM" \
    "rm -rf lm mt-data; (fairseq-train lm-data --user-dir $plugin --task sentence_reset_lm --arch attentive_lstm_lm \
--decoder-embed-dim 160 --decoder-hidden-size 160 --decoder-layers 1 --dropout 0.2 --init-range 0.1 \
--lr 0.008 --warmup-updates 40 --total-num-update 480 --clip-norm 5 --max-tokens 900 --batch-order length --max-epoch 2 --criterion lm_cross_entropy \
$training --save-dir lm && attlm ngram train.txt -o lm.arpa -n 3) & \
fairseq-preprocess -s cipher -t en --trainpref parallel --validpref valid --testpref test --tgtdict lm-data/dict.txt --destdir mt-data && \
fairseq-train mt-data -s cipher -t en $translation --save-dir mt && wait \$!"
decode="fairseq-generate mt-data --user-dir $plugin --task translation_with_lm --path mt/checkpoint_last.pt \
--gen-subset test --beam 5 --max-len-a 1.5 --max-len-b 5 --batch-size 50 --cpu --num-workers 0"
# translate NAME OPTIONS: the command that writes NAME.txt
translate() {
    echo "$decode $2 > $1.out 2> $1.report && grep ^H- $1.out | sort -t- -k2n | cut -f 3 > $1.txt"
}
# Two at a time, a core each; `wait` gives the exit status of the one in the background.
step decode-ngram ngram.txt "translate test: the translation model alone, and with the 3-gram" \
    "($(translate none "")) & $(translate ngram "--lms lm.arpa=0.3") && wait \$!"
step decode-attentive attentive.txt "translate test: with the attentive LM, and with both" \
    "($(translate both "--lms lm/checkpoint_best.pt=0.15:lm.arpa=0.25")) & $(translate attentive "--lms lm/checkpoint_best.pt=0.4 --lm-compare") && wait \$!"
step bleu bleu.txt "BLEU on test" \
    "sacrebleu test.en -i none.txt ngram.txt attentive.txt both.txt -m bleu --tokenize none --width 2 -f text > bleu.txt"

# Rescoring: the lists of the translation model alone; weights from valid, BLEU on test.
step train-others right "side by side: translation models of the other direction, and from right to left" \
    "rm -rf back back-data right right-data; (fairseq-preprocess -s en -t cipher --trainpref parallel --validpref valid \
--srcdict mt-data/dict.en.txt --tgtdict mt-data/dict.cipher.txt --destdir back-data && \
fairseq-train back-data -s en -t cipher $translation --save-dir back) & \
for split in parallel valid; do cp \$split.cipher right-\$split.cipher; \
awk '{ for (i = NF; i > 1; i--) printf \"%s \", \$i; print \$1 }' \$split.en > right-\$split.en; done && \
fairseq-preprocess -s cipher -t en --trainpref right-parallel --validpref right-valid \
--srcdict mt-data/dict.cipher.txt --tgtdict mt-data/dict.en.txt --destdir right-data && \
fairseq-train right-data -s cipher -t en $translation --save-dir right && wait \$!"
# lists SPLIT: the command that writes SPLIT.nbest
lists() {
    echo "fairseq-generate mt-data --user-dir $plugin --task translation_with_lm --path mt/checkpoint_last.pt --gen-subset $1 --beam 20 --nbest 20 --max-len-a 1.5 --max-len-b 5 \
--batch-size 20 --cpu --num-workers 0 > $1.nbest"
}
step nbest test.nbest "n-best lists of valid and test: the 20 best translations each" \
    "($(lists valid)) & $(lists test) && wait \$!"
lms="--lm attentive=lm/checkpoint_best.pt --kenlm ngram=lm.arpa"
mts="--mt forward=mt/checkpoint_last.pt --mt-right-to-left right=right/checkpoint_last.pt --mt-reverse back=back/checkpoint_last.pt"
for system in lms mts all; do
    case $system in
        lms) what="language models" models=$lms ;;
        mts) what="translation models" models=$mts ;;
        all) what="language and translation models" models="$lms $mts" ;;
    esac
    step "tune-$system" "$system.toml" "$what: tune the weights on valid" \
        "attlm tune valid.nbest --refs valid.en --refs-by number --metric bleu --bleu-tokenize none $models --folds 5 -o $system.toml"
    step "rescore-$system" "test.$system.nbest" "$what: rescore test" \
        "attlm rescore test.nbest --config $system.toml -o test.$system.nbest"
done
step rescored rescored.txt "BLEU on test, as decoded and rescored" \
    "attlm eval test.nbest test.lms.nbest test.mts.nbest test.all.nbest --refs test.en --refs-by number --metric bleu --bleu-tokenize none > rescored.txt"
step gain gain.txt "do the translation models add to the language models?" \
    "attlm eval test.lms.nbest test.all.nbest --refs test.en --refs-by number --metric bleu --bleu-tokenize none > gain.txt"

echo
cat bleu.txt
echo
grep -h "^attlm: language models" attentive.report || true
grep -h "Translated" none.out attentive.out || true
echo
cat rescored.txt
echo
grep -v oracle gain.txt
echo
echo "$SECONDS s. The models and translations are in $work"
